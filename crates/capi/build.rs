//! Sets the soname of the shared library, by which programs find it. It contains the major version:
//! programs work with all libraries of the same major version.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_default();
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librelativist.so.{major}");
}
