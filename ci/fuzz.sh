#!/usr/bin/env bash
# Runs all fuzz targets, or the given ones, in parallel: ci/fuzz.sh [SECONDS [TARGET...]], by
# default for 60 seconds. The build uses stable Rust, with libFuzzer's coverage and without a
# sanitizer; `cargo +nightly fuzz run TARGET` (cargo-fuzz) adds AddressSanitizer. Inputs that fail
# are written to fuzz/artifacts, interesting ones to fuzz/corpus, with which the next run begins.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
targets=("${@:2}")
[ ${#targets[@]} -gt 0 ] || targets=($(basename -s .rs fuzz/fuzz_targets/*.rs))
host=$(rustc -vV | sed -n 's/^host: //p')
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}/fuzz")
export CARGO_TARGET_DIR
RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
  RUSTFLAGS+=" -Cllvm-args=-sanitizer-coverage-$option"
done
export RUSTFLAGS
# With --target, programs that run during the build are not instrumented.
cargo build --release --locked --manifest-path fuzz/Cargo.toml --target "$host" "${targets[@]/#/--bin=}"

fuzz() {
  local folders=(fuzz/{artifacts,corpus}/"$target")
  mkdir -p "${folders[@]}"
  local options=(-seed=1 -max_total_time="$seconds" -timeout=60 -rss_limit_mb=4096 -artifact_prefix="${folders[0]}/" -print_final_stats=1)
  [ ! -f "fuzz/$target.dict" ] || options+=(-dict="fuzz/$target.dict")
  local log="$CARGO_TARGET_DIR/$target.log"
  if ! "$CARGO_TARGET_DIR/$host/release/$target" "${options[@]}" "${folders[1]}" >"$log" 2>&1; then
    tail -n 50 "$log"
    echo "fuzz: $target failed; repeat by $CARGO_TARGET_DIR/$host/release/$target FILE, with the file named above" >&2
    return 1
  fi
  # Blocks of code that were reached, and inputs that were tried.
  echo "$target: $(grep -oE 'cov: [0-9]+' "$log" | tail -n 1), $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs"
}
export -f fuzz
export seconds host
printf '%s\n' "${targets[@]}" | xargs -P 0 -I{} env target={} bash -c fuzz
