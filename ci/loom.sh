#!/usr/bin/env bash
# Model checking: the interleavings (with a bounded number of preemptions, set by each model) of
# small scenarios of RCU, the tables, the cache, and the move of an entry to another key. With --quick the
# largest models, which take minutes, are explored with one preemption instead of two, and those of
# the papers' tables are left out.
set -euo pipefail
cd "$(dirname "$0")/.."

[ "${1-}" != --quick ] || export RELATIVIST_LOOM_QUICK=1
# With the flags and the folder of ci/mutation.sh: both build the same dependencies.
export CARGO_PROFILE_RELEASE_LTO=off RUSTFLAGS="--cfg relativist_loom"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/mutation-loom"
# One command for all crates, so that their common dependencies are built once.
both=(--locked --release --package relativist-core --package relativist-rcu --package relativist-table --package relativist-bucket --package relativist --package relativist-cache)
cargo test "${both[@]}" --lib loom_tests
[ -n "${RELATIVIST_LOOM_QUICK:-}" ] || cargo test "${both[@]}" --package relativist-papers --no-default-features --test loom
