#!/usr/bin/env bash
# Runs the examples of the libraries. Each checks its own results.
set -euo pipefail
cd "$(dirname "$0")/.."

# The same build as that of `cargo test`, so after `cargo test` there is nothing to build. (`cargo
# build --examples` would build dependencies again, with the features that only examples need.)
cargo test --workspace --locked --no-run --quiet
for example in crates/{rcu,table,map,cache,papers,bench}/examples/*.rs; do
  [[ -e $example ]] || continue
  echo "== $example"
  "${CARGO_TARGET_DIR:-target}/debug/examples/$(basename "$example" .rs)"
done
