#!/usr/bin/env bash
# Runs the examples of the libraries: each checks what it shows. (`cargo test` builds them.)
set -euo pipefail
cd "$(dirname "$0")/.."

cargo test --workspace --locked --no-run --quiet
for example in crates/{rcu,map}/examples/*.rs; do
  [[ -e $example ]] || continue
  echo "== $example"
  "${CARGO_TARGET_DIR:-target}/debug/examples/$(basename "$example" .rs)"
done
