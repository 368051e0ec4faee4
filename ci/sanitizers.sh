#!/usr/bin/env bash
# Tests under ThreadSanitizer, and under AddressSanitizer with LeakSanitizer: ci/sanitizers.sh
# [--quick] [thread | address] [rcu] [table] [bucket] [map] [cache] [papers] [store] [server]; all
# of these by default. Runs RCU's tests, those of the tables, the stress tests of the maps and of
# the papers' tables, the tests of the cache and of the store, and the server's tests over sockets,
# with both backends. With --quick it leaves out the tables, the papers' tables, the cache, the
# server, and the slowest tests that have one thread. Installs a nightly toolchain with rust-src:
# ThreadSanitizer must see the synchronisation of the standard library, too, so that is built with
# it.
set -euo pipefail
cd "$(dirname "$0")/.."

# Both sanitizers may start at the same time, but only one rustup may run.
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
exec 9>"$target/nightly.lock"
flock 9
rustup run nightly rustc --version || rustup toolchain install nightly --profile minimal || {
  echo "sanitizers: no nightly toolchain: rustup toolchain install nightly" >&2
  exit 1
}
[[ -e $(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock ]] ||
  rustup component add --toolchain nightly rust-src || {
  echo "sanitizers: no source of the standard library: rustup component add --toolchain nightly rust-src" >&2
  exit 1
}
exec 9>&-
host=$(rustc -vV | sed -n 's/^host: //p')

crates=(rcu table bucket map cache papers store server)
skipped=()
if [ "${1:-}" = --quick ]; then
  shift
  crates=(rcu map store)
  # They compute statistics, from millions of samples.
  skipped=(--skip estimates_are_right --skip ages_are_precise --skip the_top_of_a --skip all_samples_are_counted)
  export RELATIVIST_STRESS_SECONDS=0.5 RELATIVIST_TORTURE_SECONDS=1
fi

run() { cargo +nightly test --locked "${build[@]}" "$@" -- "${skipped[@]}"; }

# check CRATE: its tests, with $sanitizer.
check() {
  echo "== $1: $sanitizer sanitizer"
  case $1 in
    rcu) run --package relativist-rcu --lib --tests ;;
    table) run --package relativist-table --lib --tests ;;
    bucket) run --package relativist-bucket --lib --tests ;;
    map) run --package relativist --test stress ;;
    papers) RELATIVIST_STRESS_RESIZES=20 run --package relativist-papers --no-default-features --test suite residents ;;
    # Optimised, this suite takes longer to build than it takes otherwise.
    cache) run --config profile.dev.package.relativist-cache.opt-level=0 --package relativist-cache --lib --test suite ;;
    store) run --package relativist-store --lib --tests ;;
    server) run --package relativistd --lib --test suite ;;
    *) echo "sanitizers: no tests for $1: ${crates[*]}" >&2; exit 1 ;;
  esac
}

# Sanitizers do not see accesses by the kernel (io_uring), and by C and assembler (TLS). Under
# cfg(relativist_sanitizer) four things differ: limits of the resident set in tests; the search for
# leaks in programs confined by seccomp (servers in the tests' own process are searched); a test of
# the table leaves out what leaks by design; and the addresses that a store reserves, of which
# ThreadSanitizer has few. The store's blocks are mappings, which AddressSanitizer does not know
# either, so the store poisons freed memory (crates/store/src/memory/poison.rs). Nothing is
# suppressed: ThreadSanitizer knows neither fences nor membarrier, but wherever a thread passes
# memory to another, there is a store and a load that it sees.

# The manuals of the sanitizers recommend this. Without optimisation everything takes several times
# as long.
export CARGO_PROFILE_DEV_OPT_LEVEL=1
# Printing backtraces of panics, which some tests cause, would take most of the time.
export RUST_BACKTRACE=0
# Everything takes longer than the watchdog of crates/testing expects.
export RELATIVIST_TEST_SECONDS=1800
# The tests of fork go on using threads in the child.
export TSAN_OPTIONS="die_after_fork=0"
sanitizers="thread address"
case ${1:-} in thread | address) sanitizers=$1; shift ;; esac
for sanitizer in $sanitizers; do
  # Memory that threads keep for their next nodes would hide accesses after it was freed.
  export RUSTFLAGS="-Zsanitizer=$sanitizer --cfg relativist_sanitizer=\"$sanitizer\" --cfg relativist_no_recycling"
  export CARGO_TARGET_DIR="$target/sanitizer-$sanitizer"
  build=(--target "$host")
  if [[ $sanitizer == thread ]]; then
    build+=(-Zbuild-std)
  else
    RUSTFLAGS+=" -Cunsafe-allow-abi-mismatch=sanitizer"
  fi
  [ $# -eq 0 ] || crates=("$@")
  for crate in "${crates[@]}"; do
    check "$crate"
  done
done
