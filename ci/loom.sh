#!/usr/bin/env bash
# Model checking: every interleaving (with a bounded number of preemptions) of small scenarios of RCU and the table.
set -euo pipefail
cd "$(dirname "$0")/.."

export RUSTFLAGS="--cfg relativist_loom"
export LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-2}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
cargo test --locked --release --package relativist-rcu --test loom
cargo test --locked --release --package relativist --test loom
