#!/usr/bin/env bash
# Runs tests for aarch64 Linux in an emulator: RCU, the map, the codec, the papers' tables, and librelativist from
# C. Builds them with Debian's cross compilers, which are installed.
#
# The emulator executes Arm's instructions, but with the memory model of the machine that it runs on. So this finds
# what is wrong with code for this architecture, its pointers, system calls and layouts. It does not find missing
# memory orderings: ci/litmus.sh and ci/loom.sh do. `membarrier` is passed to the kernel of the machine, so both
# barriers of RCU are tested.
set -euo pipefail
cd "$(dirname "$0")/.."

version=1.96
triple=aarch64-unknown-linux-gnu
source ci/debian.sh
source ci/debian-rust.sh
alone as_root dpkg --add-architecture arm64
debian_rust "$version" libllvm22 qemu-user-static gcc-aarch64-linux-gnu -- \
  rustc-web "libstd-rust-web-$version" libstd-rust-web-dev libstd-rust-web-dev:arm64
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/aarch64" CARGO_INCREMENTAL=0
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
emulator="qemu-aarch64-static -L /usr/aarch64-linux-gnu"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=$emulator RELATIVIST_TEST_RUNNER=$emulator
# Everything takes ten times as long. Tests that run for a given time do so for less.
export RELATIVIST_STRESS_SECONDS=0.2 RELATIVIST_STRESS_RESIZES=10 RELATIVIST_TORTURE_SECONDS=1

# These tests are left out. The emulator has no seccomp (ends_by_abort). It is a program with threads and locks of
# its own: a child forked while another thread holds one of them hangs, so the test program `fork` is left out.
left_out=(--skip ends_by_abort)
# So are those that take longest, and find the same on each architecture: large maps that are filled in all ways,
# and panics at each call of user code.
left_out+=(--skip fill::a_map_that_ --skip fill::a_sparse_map_is_filled)

# programs CRATE PATTERN: the test programs of a crate, as arguments of cargo, without those that match.
programs() {
  local program name
  for program in crates/"$1"/tests/*.rs crates/"$1"/tests/*/main.rs; do
    [ -e "$program" ] || continue
    name=$(basename "${program%.rs}")
    [ "$name" != main ] || name=$(basename "$(dirname "$program")")
    [[ $name =~ ^($2)$ ]] || printf -- '--test %s ' "$name"
  done
}

# shellcheck disable=SC2046 # Names of tests have no blanks.
run() { cargo test --locked --target "$triple" --package "$1" --lib $(programs "$2" "$3") -- "${left_out[@]}"; }
run relativist map 'loom|shuttle|panic_safety.*'
run relativist-rcu rcu 'loom|fork'
cargo test --locked --target "$triple" --package relativist-memcache --package relativist-baselines --lib --tests -- "${left_out[@]}"

cargo build --locked --target "$triple" --package relativist-capi
aarch64-linux-gnu-gcc -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -pthread crates/capi/tests/table.c \
  -Icrates/capi/include -o "$CARGO_TARGET_DIR/table" "$CARGO_TARGET_DIR/$triple/debug/librelativist.a"
$emulator "$CARGO_TARGET_DIR/table" 100
