#!/usr/bin/env bash
# Checks that the libraries build with the oldest compiler that they promise: `rust-version` in their
# Cargo.toml, which is the version of Debian 13. Checks all features of the libraries, and runs tests with this
# compiler: of RCU, the unit and stress tests of the map, and the tests of the codec. Other tests of the map need crates
# that need a newer compiler. With --quick it runs no tests. Unpacks the compiler and cargo from Debian's
# packages.
set -euo pipefail
cd "$(dirname "$0")/.."

version=1.85
crates=(relativist-core relativist-rcu relativist-table relativist-bucket relativist-derive relativist relativist-cache relativist-memcache relativist-capi)
for crate in core rcu table bucket derive map cache memcache capi; do
  grep -qx "rust-version = \"$version\"" "crates/$crate/Cargo.toml" || {
    echo "msrv: crates/$crate/Cargo.toml does not promise Rust $version" >&2
    exit 1
  }
done

source ci/debian.sh
source ci/debian-rust.sh
alone as_root dpkg --add-architecture arm64
debian_rust "$version" gcc libllvm19 libcurl4 libhttp-parser2.9 libpcre3 libsqlite3-0 libssh2-1 -- \
  rustc-web "libstd-rust-web-$version" libstd-rust-web-dev libstd-rust-web-dev:arm64 cargo-web
cargo="$toolchain/usr/bin/cargo"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/msrv" CARGO_INCREMENTAL=0

# Some code is for one architecture, so another one is checked, too.
for options in "" --all-features "--all-features --target aarch64-unknown-linux-gnu"; do
  # shellcheck disable=SC2086
  "$cargo" check --locked "${crates[@]/#/--package=}" $options
done
[ "${1:-}" != --quick ] || exit 0
# --ignore-rust-version: proptest promises only a newer compiler, but this one builds it, too.
"$cargo" test --locked --ignore-rust-version --package relativist-rcu --package relativist-memcache
# Under this cfg the map's tests need no other crates (crates/map/Cargo.toml).
RUSTFLAGS="--cfg relativist_no_recycling" "$cargo" test --locked --package relativist --lib --test stress
