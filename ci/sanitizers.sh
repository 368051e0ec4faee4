#!/usr/bin/env bash
# The stress tests under ThreadSanitizer and AddressSanitizer (with LeakSanitizer). Needs a nightly toolchain.
set -euo pipefail
cd "$(dirname "$0")/.."

rustup run nightly rustc --version || {
  rustup toolchain install nightly --profile minimal || {
    echo "sanitizers: no nightly toolchain: rustup toolchain install nightly" >&2
    exit 1
  }
}
host=$(rustc -vV | sed -n 's/^host: //p')
for sanitizer in thread address; do
  echo "== $sanitizer sanitizer"
  RUSTFLAGS="-Zsanitizer=$sanitizer -Cunsafe-allow-abi-mismatch=sanitizer" \
    CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/sanitizer-$sanitizer" \
    cargo +nightly test --locked --target "$host" --package relativist-rcu --package relativist --tests
done
