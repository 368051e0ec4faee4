#!/usr/bin/env bash
# Runs the examples of the libraries. Each checks its own results. `cargo test --workspace` builds
# them in the same way, so after it there is nothing to build.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --workspace --examples --locked
for example in crates/{rcu,table,map,cache,papers,bench}/examples/*.rs; do
  [[ -e $example ]] || continue
  echo "== $example"
  "${CARGO_TARGET_DIR:-target}/debug/examples/$(basename "$example" .rs)"
done
