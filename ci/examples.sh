#!/usr/bin/env bash
# Runs the examples of the libraries: each checks what it shows. (`cargo test` builds them.)
set -euo pipefail
cd "$(dirname "$0")/.."

for example in crates/{rcu,map}/examples/*.rs; do
  [[ -e $example ]] || continue
  crate=relativist
  [[ $example == crates/map/* ]] || crate=relativist-rcu
  echo "== $example"
  cargo run --quiet --locked --package "$crate" --all-features --example "$(basename "$example" .rs)"
done
