//! Records the versions of the build for the reports, and compiles the competitors in C and C++
//! whose features are enabled.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Crates whose versions a measurement depends on.
const MEASURED: [&str; 13] = [
    "crossbeam-epoch",
    "foyer-memory",
    "dashmap",
    "foldhash",
    "hashbrown",
    "mimalloc",
    "moka",
    "papaya",
    "quick_cache",
    "rustc-hash",
    "scc",
    "segcache",
    "seize",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    record("RELATIVIST_RUSTC", &compiler());
    record("RELATIVIST_RUSTFLAGS", &variable("CARGO_ENCODED_RUSTFLAGS").replace('\u{1f}', " "));
    record("RELATIVIST_OPT_LEVEL", &variable("OPT_LEVEL"));
    record("RELATIVIST_TARGET", &variable("TARGET"));
    let mut measured = locked_versions();
    #[cfg(feature = "cc")]
    measured.extend(competitors::compile());
    measured.sort_unstable();
    record("RELATIVIST_MEASURED", &measured.join(","));
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

/// Returns name and version of each measured crate on which this one depends, from the lock file.
fn locked_versions() -> Vec<String> {
    let lock = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    let text = fs::read_to_string(lock).unwrap_or_default();
    let packages: Vec<&str> = text.split("[[package]]").collect();
    // If the lock file has several versions of a crate, it lists dependencies on it with the
    // version.
    let ours = packages.iter().find(|package| field(package, "name") == Some(env!("CARGO_PKG_NAME"))).unwrap_or(&"");
    let exact = |name: &str| {
        let mut dependencies = ours.lines().filter_map(|line| line.trim().trim_end_matches(',').strip_prefix('"'));
        dependencies
            .find_map(|dependency| Some(dependency.strip_prefix(name)?.strip_prefix(' ')?.trim_end_matches('"')))
    };
    let only = |name: &str| {
        let package = packages.iter().find(|package| field(package, "name") == Some(name))?;
        field(package, "version")
    };
    let versions = MEASURED.iter().filter_map(|name| Some(format!("{name} {}", exact(name).or_else(|| only(name))?)));
    versions.collect()
}

fn field<'p>(package: &'p str, key: &str) -> Option<&'p str> {
    let value = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
    Some(value.trim_matches('"'))
}

#[cfg(feature = "cc")]
mod competitors {
    use std::process::Command;

    /// Compiles the competitors whose features are enabled. Returns their packages with versions,
    /// if the system is Debian.
    pub fn compile() -> Vec<String> {
        println!("cargo::rerun-if-changed=src/tools/compare/rcu/liburcu.c");
        println!("cargo::rerun-if-changed=src/tables/foreign");
        let mut packages = Vec::new();
        if cfg!(feature = "liburcu") {
            // Uses initial-exec thread-local storage, as in a program that links liburcu directly.
            let mut build = cc::Build::new();
            build
                .files(["src/tools/compare/rcu/liburcu.c", "src/tables/foreign/lfht.c"])
                .opt_level(3)
                .flag("-ftls-model=initial-exec");
            build.compile("relativist_urcu");
            println!("cargo::rustc-link-lib=urcu-cds");
            println!("cargo::rustc-link-lib=urcu-memb");
            packages.push(version("liburcu-dev"));
        }
        if cfg!(feature = "boost") {
            println!("cargo::rerun-if-env-changed=CPLUS_INCLUDE_PATH");
            let mut build = cc::Build::new();
            build.cpp(true).std("c++17").file("src/tables/foreign/boost.cc").opt_level(3);
            build.compile("relativist_boost");
            packages.push(format!("boost {}", boost_version()));
        }
        packages
    }

    /// Returns the version of the headers that the compiler finds, which need not be installed by a
    /// package.
    fn boost_version() -> String {
        let compiler = cc::Build::new().cpp(true).get_compiler();
        let macros = ["-x", "c++", "-dM", "-E", "-include", "boost/version.hpp", "/dev/null"];
        let output = compiler.to_command().args(macros).output().map(|output| output.stdout).unwrap_or_default();
        let output = String::from_utf8_lossy(&output).into_owned();
        let version = output.lines().find_map(|line| line.strip_prefix("#define BOOST_LIB_VERSION "));
        version.map_or_else(|| "of unknown version".into(), |version| version.trim_matches('"').replace('_', "."))
    }

    fn version(package: &str) -> String {
        let output = Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]).output();
        let version = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
        let version = version.map_or_else(|| "of unknown version".into(), |v| String::from_utf8_lossy(&v).into_owned());
        format!("{package} {version}")
    }
}
