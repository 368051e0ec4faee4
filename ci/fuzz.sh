#!/usr/bin/env bash
# Every fuzz target, for so many seconds each: ci/fuzz.sh [SECONDS], 60 without. Needs nightly Rust and cargo-fuzz. What is found stays in the
# crate's fuzz/artifacts; what was tried before, in its fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")/.."

for folder in crates/*/fuzz; do
  for target in $(cargo +nightly fuzz list --fuzz-dir "$folder"); do
    options=(-max_total_time="${1:-60}" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1)
    [ ! -f "$folder/$target.dict" ] || options+=(-dict="$folder/$target.dict")
    echo "== $folder: $target"
    cargo +nightly fuzz run --fuzz-dir "$folder" "$target" -- "${options[@]}"
  done
done
