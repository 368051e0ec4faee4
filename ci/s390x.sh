#!/usr/bin/env bash
# Runs tests for s390x Linux in an emulator, as ci/aarch64.sh does for aarch64: RCU, and the map's unit and stress
# tests. This architecture is big-endian. Debian has the standard library for it only for the older compiler.
set -euo pipefail
cd "$(dirname "$0")/.."

version=1.85
triple=s390x-unknown-linux-gnu
source ci/debian.sh
source ci/debian-rust.sh
alone as_root dpkg --add-architecture s390x
debian_rust "$version" libllvm19 qemu-user-static gcc-s390x-linux-gnu -- \
  rustc-web "libstd-rust-web-$version" libstd-rust-web-dev libstd-rust-web-dev:s390x
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/s390x" CARGO_INCREMENTAL=0
export CARGO_TARGET_S390X_UNKNOWN_LINUX_GNU_LINKER=s390x-linux-gnu-gcc
emulator="qemu-s390x-static -L /usr/s390x-linux-gnu"
export CARGO_TARGET_S390X_UNKNOWN_LINUX_GNU_RUNNER=$emulator RELATIVIST_TEST_RUNNER=$emulator
export RELATIVIST_STRESS_SECONDS=0.2 RELATIVIST_TORTURE_SECONDS=1

cargo test --locked --target "$triple" --package relativist-rcu --lib --tests -- --skip forks_into_the_turmoil
# Under this cfg the map's tests need no other crates (crates/map/Cargo.toml).
RUSTFLAGS="--cfg relativist_no_recycling" cargo test --locked --target "$triple" --package relativist \
  --lib --test stress --test stress_flat --test exhaustion
