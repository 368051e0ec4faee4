#!/usr/bin/env bash
# The tests of the maps' table under Miri, which finds undefined behaviour that no processor shows:
# wrong aliasing, invalid values, reads of memory that was not written. Tests do a hundredth of what
# they do otherwise. Installs a nightly toolchain with Miri.
set -euo pipefail
cd "$(dirname "$0")/.."

# Only one rustup may run at a time.
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
exec 9>"$target/nightly.lock"
flock 9
rustup run nightly rustc --version || rustup toolchain install nightly --profile minimal
rustup component add --toolchain nightly miri rust-src
exec 9>&-

# Threads sleep until a time of the host, and the process's tables are never dropped.
export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-ignore-leaks"
cargo +nightly miri test --locked --package relativist-bucket --test suite
