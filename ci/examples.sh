#!/usr/bin/env bash
# Runs the examples of the libraries: each checks what it shows. Built as `cargo test --workspace` builds them, so there is nothing to build after it.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --workspace --examples --locked
for example in crates/{rcu,map,baselines}/examples/*.rs; do
  [[ -e $example ]] || continue
  echo "== $example"
  "${CARGO_TARGET_DIR:-target}/debug/examples/$(basename "$example" .rs)"
done
