#!/usr/bin/env bash
# Runs scenarios that are too large for exhaustive search, under many random schedules with fixed seeds.
set -euo pipefail
cd "$(dirname "$0")/.."

# Like ci/loom.sh, with the flags and the folder of ci/mutation.sh: both build the same dependencies.
export CARGO_PROFILE_RELEASE_LTO=off RUSTFLAGS="--cfg relativist_loom --cfg relativist_shuttle"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/mutation-shuttle"
cargo test --locked --release --package relativist --test shuttle
