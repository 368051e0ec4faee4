#!/usr/bin/env bash
# ci/emulated.sh aarch64 | s390x | riscv64 | ppc64le: runs tests for another architecture of Linux in an emulator:
# RCU, the map, the codec, the papers' tables, and librelativist from C. Builds them with Debian's compilers, which
# are installed. s390x is big-endian.
#
# The emulator executes the instructions of the architecture, but with the memory model of the machine that it runs
# on. So this finds what is wrong with code for this architecture, its pointers, system calls and layouts. It does
# not find missing memory orderings: ci/litmus.sh and ci/loom.sh do. `membarrier` is passed to the kernel of the
# machine, so both barriers of RCU are tested.
set -euo pipefail
cd "$(dirname "$0")/.."
source ci/debian.sh
source ci/debian-rust.sh

architecture=$1
gnu=$architecture-linux-gnu triple=$architecture-unknown-linux-gnu
case $architecture in
  aarch64 | s390x) ;;
  riscv64) triple=riscv64gc-unknown-linux-gnu ;;
  ppc64le) gnu=powerpc64le-linux-gnu triple=powerpc64le-unknown-linux-gnu ;;
  *) echo "emulated: no architecture $architecture" >&2; exit 2 ;;
esac
version=1.96
tools=(libllvm22 qemu-user-static "gcc-${gnu/_/-}")
packages=(rustc-web "libstd-rust-web-$version" libstd-rust-web-dev)
flags=()
if [ "$architecture" = aarch64 ]; then
  alone as_root dpkg --add-architecture arm64
  packages+=(libstd-rust-web-dev:arm64)
else
  # Debian has std for aarch64 only, and the source of it.
  packages+=(rust-web-src)
  # Only unstable compilers build std. RUSTC_BOOTSTRAP makes a stable one accept that.
  export RUSTC_BOOTSTRAP=1
  flags+=(-Zbuild-std)
fi
debian_rust "$version" "${tools[@]}" -- "${packages[@]}"
# The tools were installed with the compiler, but perhaps those for another architecture.
debian "$gnu-gcc" "${tools[@]}"

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/$architecture" CARGO_INCREMENTAL=0
emulator="qemu-$architecture-static -L /usr/$gnu"
name=${triple^^}
name=${name//-/_}
export "CARGO_TARGET_${name}_LINKER=$gnu-gcc" "CARGO_TARGET_${name}_RUNNER=$emulator" RELATIVIST_TEST_RUNNER=$emulator
# Everything takes ten times as long, and longer on a busy machine. Tests that run for a given time do so for less,
# and those that wait do so for longer.
export RELATIVIST_STRESS_SECONDS=0.2 RELATIVIST_STRESS_RESIZES=10 RELATIVIST_TORTURE_SECONDS=1
export RELATIVIST_TEST_PATIENCE=600 RELATIVIST_TEST_SECONDS=1800

# These tests are left out. The emulator has no seccomp (ends_by_abort). It is a program with threads and locks of
# its own: a child forked while another thread holds one of them hangs, so the test program `fork` is left out. How
# many nodes are used again depends on when the background thread runs, which is often too late on a busy machine.
left_out=(--skip ends_by_abort --skip memory_of_removed_nodes_is_used_again)
# So are those that take longest, and find the same on each architecture: large maps that are filled in all ways,
# arithmetic with all summaries, and panics at each call of user code.
left_out+=(--skip fill::a_map_that_ --skip fill::a_sparse_map_is_filled --skip a_summary_tells_the_sole_part)

# tests CRATE PATTERN: the test programs of a crate, as arguments of cargo, without those that match.
tests() {
  local program name
  for program in crates/"$1"/tests/*.rs crates/"$1"/tests/*/main.rs; do
    [ -e "$program" ] || continue
    name=$(basename "${program%.rs}")
    [ "$name" != main ] || name=$(basename "$(dirname "$program")")
    [[ $name =~ ^($2)$ ]] || echo "--test=$name"
  done
}

# run PACKAGE TEST...
run() {
  cargo test --locked "${flags[@]}" --target "$triple" --package "$1" --lib "${@:2}" -- "${left_out[@]}"
}
mapfile -t programs < <(tests map 'loom|shuttle|panic_safety.*')
run relativist "${programs[@]}"
mapfile -t programs < <(tests rcu 'loom|fork')
run relativist-rcu "${programs[@]}"
run relativist-memcache --tests
run relativist-papers --no-default-features --tests

cargo build --locked "${flags[@]}" --target "$triple" --package relativist-capi
"$gnu-gcc" -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -pthread crates/capi/tests/table.c \
  -Icrates/capi/include -o "$CARGO_TARGET_DIR/table" "$CARGO_TARGET_DIR/$triple/debug/librelativist.a"
$emulator "$CARGO_TARGET_DIR/table" 100
