//! Records what the binary was built with, so that every report can name it, and compiles the liburcu side of the
//! comparison when its feature is on.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Crates whose versions a measurement depends on.
const MEASURED: [&str; 9] =
    ["crossbeam-epoch", "dashmap", "foldhash", "hashbrown", "mimalloc", "papaya", "rustc-hash", "scc", "seize"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    record("RELATIVIST_RUSTC", &compiler());
    record("RELATIVIST_RUSTFLAGS", &variable("CARGO_ENCODED_RUSTFLAGS").replace('\u{1f}', " "));
    record("RELATIVIST_OPT_LEVEL", &variable("OPT_LEVEL"));
    record("RELATIVIST_TARGET", &variable("TARGET"));
    record("RELATIVIST_MEASURED", &locked_versions());
    #[cfg(feature = "liburcu")]
    compile_liburcu();
}

fn record(name: &str, value: &str) {
    println!("cargo::rustc-env={name}={value}");
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

fn compiler() -> String {
    let output = Command::new(variable("RUSTC")).arg("--version").output();
    output.map_or_else(|_| "unknown".into(), |o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
}

/// `name version` of each measured crate, separated by commas, as the lock file has them.
fn locked_versions() -> String {
    let lock = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    let text = fs::read_to_string(lock).unwrap_or_default();
    let mut found = Vec::new();
    for package in text.split("[[package]]") {
        let field = |key: &str| {
            let value = package.lines().find_map(|line| line.strip_prefix(key))?;
            Some(value.trim_start_matches(" = ").trim_matches('"'))
        };
        if let (Some(name), Some(version)) = (field("name"), field("version"))
            && MEASURED.contains(&name)
        {
            found.push(format!("{name} {version}"));
        }
    }
    found.join(",")
}

#[cfg(feature = "liburcu")]
fn compile_liburcu() {
    println!("cargo::rerun-if-changed=src/rcu/liburcu.c");
    // Initial-exec thread-local storage: what a program that links liburcu directly would get.
    cc::Build::new().file("src/rcu/liburcu.c").opt_level(3).flag("-ftls-model=initial-exec").compile("relativist_urcu");
    println!("cargo::rustc-link-lib=urcu-memb");
}
