#!/usr/bin/env bash
# Formatting, lints, documentation without warnings, and those rules of this
# project that a script can check.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
ci/mutation.sh --check

# none WHY PATTERN PATH...: fails when a source file below the paths has a line that matches, or when a path is gone.
none() {
  local why=$1 pattern=$2 status=0
  shift 2
  grep -rnE --include='*.rs' "$pattern" "$@" || status=$?
  [ "$status" -eq 1 ] || { echo "lint: $why" >&2; exit 1; }
}
# Guarantees are numbered in the design, and cited by the tests that would fail without them.
for crate in rcu table map; do
  for guarantee in $(grep -oE '^//! \* \*\*[A-Z][0-9]+' "crates/$crate/src/design.rs" | grep -oE '[A-Z][0-9]+$'); do
    grep -rhw --include='*.rs' --exclude=design.rs "$guarantee" crates/{rcu,table,map}/{src,tests} | grep -v 'are the guarantees of' >/dev/null ||
      { echo "lint: no test of crates/$crate cites $guarantee" >&2; exit 1; }
  done
done
# Each test program links the watchdog. (Models run for long, and have bounds of their own.)
for program in crates/*/src/lib.rs crates/*/tests/*.rs crates/*/tests/*/main.rs; do
  case $program in */loom.rs | */loom/main.rs | crates/testing/src/*) continue ;; esac
  grep -q 'relativist_testing' "$program" || { echo "lint: $program lacks \`use relativist_testing as _;\`" >&2; exit 1; }
done
# CI uses each file in deploy/: a script, a test or another file there names it. (Helm and Grafana find some by their
# place. ci/chart.sh renders and checks all templates, and ci/grafana.py all that is provisioned.)
find deploy ! -type d ! -path '*/templates/*' ! -name 'values.*' ! -name Chart.yaml ! -path '*/provisioning/*' |
  while read -r file; do
    name=${file##*/} folder=${file%/*}
    grep -rqF --exclude="$name" -- "${folder##*/}/$name" .ci ci crates/*/tests deploy ||
      { echo "lint: nothing in CI uses $file" >&2; exit 1; }
  done
# Comments are narrow, and free of the words in ci/forbidden-words.txt.
python3 ci/comments.py
none "limits are called MAX_ and MIN_, as in std" '\b(const|static) [A-Z_]*\b(MOST|FEWEST|LEAST|LONGEST|SHORTEST|SMALLEST|LARGEST)(_|:)' \
  crates/rcu crates/map crates/papers/src/tables crates/capi fuzz
none "unfinished code" 'todo!|unimplemented!|dbg!\(' crates
