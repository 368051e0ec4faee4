//! Sets the soname of the shared library, by which programs find it. A program works with all
//! versions of the library that have the same soname.

/// The number in the soname. Increase it when a function is removed or changed. `install.sh` reads
/// the next line.
const INTERFACE: u32 = 0;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librelativist.so.{INTERFACE}");
}
