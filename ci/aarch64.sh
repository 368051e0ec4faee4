#!/usr/bin/env bash
# Runs tests for aarch64 in an emulator: ci/aarch64.sh [FOLDER...], the folders below crates; by
# default all whose tests it can run. Tests librelativist (capi) from C. Builds with Debian's
# compilers, which are installed.
#
# The emulator executes the instructions of the architecture, but with the memory model of the
# machine that it runs on. So this finds what is wrong with code for this architecture, its
# pointers, system calls and layouts. It does not find missing memory orderings: ci/litmus.py and
# ci/loom.sh do. `membarrier` is passed to the kernel of the machine, so both barriers of RCU are
# tested.
set -euo pipefail
cd "$(dirname "$0")/.."

folders=("$@")
[ $# -gt 0 ] || folders=(core rcu table bucket map memcache papers capi)
# The test programs that are left out: models, panics at each call of user code, which find the same
# on each architecture, and `fork`. The emulator is a program with threads and locks of its own: a
# child forked while another thread holds one of them hangs.
declare -A left_out=([core]=none [rcu]='loom|fork' [table]=loom [bucket]=loom [map]='panic_safety.*|loom' [memcache]=none [papers]='loom|cli')
# The emulator has no seccomp (ends_by_abort). How many nodes are used again depends on when the
# background thread runs, which is often too late on a busy machine. The last one takes long, and
# finds the same on each architecture: arithmetic with
# all summaries.
skipped=(ends_by_abort memory_of_removed_nodes_is_used_again a_summary_tells_the_sole_part)

source ci/debian.sh
source ci/debian-rust.sh
version=1.96
alone as_root dpkg --add-architecture arm64
tools=(libllvm22 qemu-user-static gcc-aarch64-linux-gnu)
debian_rust "$version" "${tools[@]}" -- rustc-web "libstd-rust-web-$version" libstd-rust-web-dev libstd-rust-web-dev:arm64
debian aarch64-linux-gnu-gcc "${tools[@]}"

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/aarch64" CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0
# Without optimisation the emulated programs take several times as long. But the map's suite is so
# large that optimising it would take longer than it gains.
export CARGO_PROFILE_DEV_OPT_LEVEL=1
unoptimised=--config=profile.dev.package.relativist.opt-level=0
triple=aarch64-unknown-linux-gnu
emulator="qemu-aarch64-static -L /usr/aarch64-linux-gnu"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=$emulator RELATIVIST_TEST_RUNNER=$emulator
# Everything takes ten times as long, and longer on a busy machine. Tests that run for a given time
# do so for less, and those that wait do so for longer.
export RELATIVIST_STRESS_SECONDS=0.2 RELATIVIST_STRESS_RESIZES=10 RELATIVIST_TORTURE_SECONDS=1
export RELATIVIST_TEST_PATIENCE=600 RELATIVIST_TEST_SECONDS=1800

# tests FOLDER PATTERN: the test programs of a crate, as arguments of cargo, without those that
# match.
tests() {
  local program name
  for program in crates/"$1"/tests/*.rs crates/"$1"/tests/*/main.rs; do
    [ -e "$program" ] || continue
    name=$(basename "${program%.rs}")
    [ "$name" != main ] || name=$(basename "$(dirname "$program")")
    [[ $name =~ ^($2)$ ]] || echo "--test=$name"
  done
}

# librelativist from C.
capi() {
  cargo build --locked --target "$triple" --package relativist-capi
  aarch64-linux-gnu-gcc -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -pthread crates/capi/tests/table.c \
    -Icrates/capi/include -o "$CARGO_TARGET_DIR/table" "$CARGO_TARGET_DIR/$triple/debug/librelativist.a"
  $emulator "$CARGO_TARGET_DIR/table" 100
}

for folder in "${folders[@]}"; do
  echo "== $folder at $SECONDS s"
  if [ "$folder" = capi ]; then
    capi
    continue
  fi
  mapfile -t programs < <(tests "$folder" "${left_out[$folder]}")
  cargo test --locked "$unoptimised" --target "$triple" --manifest-path "crates/$folder/Cargo.toml" --no-default-features --lib "${programs[@]}" -- "${skipped[@]/#/--skip=}"
done
