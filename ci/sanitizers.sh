#!/usr/bin/env bash
# RCU's tests and the map's stress tests under ThreadSanitizer and AddressSanitizer (with LeakSanitizer). Needs a nightly
# toolchain; its standard library is not instrumented, hence the suppressions.
set -euo pipefail
cd "$(dirname "$0")/.."

rustup run nightly rustc --version || rustup toolchain install nightly --profile minimal || {
  echo "sanitizers: no nightly toolchain: rustup toolchain install nightly" >&2
  exit 1
}
host=$(rustc -vV | sed -n 's/^host: //p')
target=${CARGO_TARGET_DIR:-target}
export TSAN_OPTIONS="suppressions=$PWD/ci/tsan.supp die_after_fork=0"
for sanitizer in thread address; do
  echo "== $sanitizer sanitizer"
  export RUSTFLAGS="-Zsanitizer=$sanitizer -Cunsafe-allow-abi-mismatch=sanitizer" CARGO_TARGET_DIR="$target/sanitizer-$sanitizer"
  cargo +nightly test --locked --target "$host" --package relativist-rcu --lib --tests
  cargo +nightly test --locked --target "$host" --package relativist --test stress
done
