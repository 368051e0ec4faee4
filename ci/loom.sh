#!/usr/bin/env bash
# Model checking: the interleavings (with a bounded number of preemptions, set by each model) of small scenarios of RCU and the
# table. With --quick the largest models, which take minutes, are explored with one preemption instead of two.
set -euo pipefail
cd "$(dirname "$0")/.."

[ "${1-}" != --quick ] || export RELATIVIST_LOOM_QUICK=1
export CARGO_PROFILE_RELEASE_LTO=off RUSTFLAGS="--cfg relativist_loom" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
cargo test --locked --release --package relativist-rcu --lib --test loom
cargo test --locked --release --package relativist --test loom
