#!/usr/bin/env bash
# Runs tests for 64-bit Windows in Wine: RCU, and the unit and stress tests of the maps. Not in CI, because Debian 12's
# Wine 8 is no Windows: its FlushProcessWriteBuffers does nothing, so any test whose readers execute no fence may fail
# now and then. Compiles std from Debian's source of it, and links with MinGW. Installs Debian's packages.
set -euo pipefail
cd "$(dirname "$0")/.."

version=1.96
triple=x86_64-pc-windows-gnu
source ci/debian.sh
source ci/debian-rust.sh
debian_rust "$version" libllvm22 -- rustc-web "libstd-rust-web-$version" libstd-rust-web-dev rust-web-src
debian x86_64-w64-mingw32-gcc gcc-mingw-w64-x86-64
debian wine wine wine64

# Only unstable compilers build std. RUSTC_BOOTSTRAP makes a stable one accept that.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/windows" CARGO_INCREMENTAL=0 RUSTC_BOOTSTRAP=1

# Each program begins and ends with objects of std, which rustc expects among the libraries of the target.
sysroot=$("$RUSTC" --print sysroot)/lib/rustlib
libraries=$sysroot/$triple/lib
mkdir -p "$libraries"
for object in rsbegin rsend; do
  "$RUSTC" --target "$triple" --emit obj --crate-type lib -o "$libraries/$object.o" "$sysroot/src/rust/library/rtstartup/$object.rs"
done

work=$(mktemp -d)
trap 'wineserver --kill || true; rm -rf "$work"' EXIT
export WINEPREFIX=$work/wine WINEPATH=$work WINEDEBUG=-all
# std gets random numbers from a library that Wine 8 does not have.
x86_64-w64-mingw32-gcc -shared -o "$work/bcryptprimitives.dll" -x c - -x none -ladvapi32 <<'C'
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T size) { return SystemFunction036(data, size); }
C
export CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER=wine
export RELATIVIST_STRESS_SECONDS=1 RELATIVIST_TORTURE_SECONDS=2 RELATIVIST_TEST_PATIENCE=600

run() {
  timeout 1200 cargo test --locked -Zbuild-std --target "$triple" "$@"
}
# The test that is left out looks for what a missing barrier would cause.
run --package relativist-rcu --lib --tests -- --skip membarrier_holds_against_lagging_stores
# Under this cfg the map's tests need no other crates (crates/map/Cargo.toml).
RUSTFLAGS="--cfg relativist_no_recycling" run --package relativist --lib --test stress --test stress_flat
