#!/usr/bin/env bash
# RCU's tests and the stress tests of the map and of the papers' tables under ThreadSanitizer and AddressSanitizer (with LeakSanitizer). Needs a nightly
# toolchain with rust-src: ThreadSanitizer has to see the standard library's synchronisation, too, so that is built with it.
set -euo pipefail
cd "$(dirname "$0")/.."

rustup run nightly rustc --version || rustup toolchain install nightly --profile minimal || {
  echo "sanitizers: no nightly toolchain: rustup toolchain install nightly" >&2
  exit 1
}
[[ -e $(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock ]] ||
  rustup component add --toolchain nightly rust-src || {
  echo "sanitizers: no source of the standard library: rustup component add --toolchain nightly rust-src" >&2
  exit 1
}
host=$(rustc -vV | sed -n 's/^host: //p')
target=${CARGO_TARGET_DIR:-target}
# Nothing here is slower than writing the traces of panics, which some tests provoke.
export RUST_BACKTRACE=0
# The tests of fork go on using threads in the child.
export TSAN_OPTIONS="die_after_fork=0"
for sanitizer in thread address; do
  echo "== $sanitizer sanitizer"
  # Memory that threads keep for their next nodes would hide accesses after it was freed.
  export RUSTFLAGS="-Zsanitizer=$sanitizer --cfg relativist_no_recycling" CARGO_TARGET_DIR="$target/sanitizer-$sanitizer"
  build=(--target "$host")
  if [[ $sanitizer == thread ]]; then
    build+=(-Zbuild-std)
  else
    RUSTFLAGS+=" -Cunsafe-allow-abi-mismatch=sanitizer"
  fi
  cargo +nightly test --locked "${build[@]}" --package relativist-rcu --lib --tests
  cargo +nightly test --locked "${build[@]}" --package relativist --test stress
  RELATIVIST_STRESS_RESIZES=20 cargo +nightly test --locked "${build[@]}" --package relativist-tables --test suite residents
done
