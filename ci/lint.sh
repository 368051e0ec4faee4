#!/usr/bin/env bash
# Formatting, lints, documentation without warnings, and those rules of this
# project that a script can check. (A test checks that imports point downward.)
set -euo pipefail
cd "$(dirname "$0")/.."

# The crates whose guarantees are numbered.
guaranteed=(rcu table bucket)

cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
ci/mutation.sh --check

fail() {
  echo "lint: $*" >&2
  exit 1
}

# none WHY PATTERN PATH...: fails when a source file below the paths has a line that matches, or
# when a path is gone.
none() {
  local why=$1 pattern=$2 status=0
  shift 2
  grep -rnE --include='*.rs' "$pattern" "$@" || status=$?
  [ "$status" -eq 1 ] || fail "$why"
}
none "unfinished code" 'todo!|unimplemented!|dbg!\(' crates
none "limits are called MAX_ and MIN_, as in std" '\b(const|static) [A-Z_]*\b(MOST|FEWEST|LEAST|LONGEST|SHORTEST|SMALLEST|LARGEST)(_|:)' crates fuzz

# Comments are at most 100 columns wide, except what cannot be broken: code, tables, links, and
# single words.
wide=$(find crates fuzz -name '*.rs' -not -path '*/target/*' -print0 | xargs -0 perl -CSD -ne '
  $code = 0 unless m{^\s*//};
  $code = !$code if m{^\s*//[/!]?\s*```};
  chomp;
  print "$ARGV:$.\n" if m{^\s*//} && length > 100 && !$code && !m{^\s*//[/!]?\s*(\||\[[^]]+\]: |\S+$)};
  close ARGV if eof;')
[ -z "$wide" ] || fail "these comments are wider than 100 columns:"$'\n'"$wide"
# Guarantees are numbered in the design, and cited by the tests that would fail without them.
for crate in "${guaranteed[@]}"; do
  for guarantee in $(grep -oE '^//! \* \*\*[A-Z][0-9]+' "crates/$crate/src/design.rs" | grep -oE '[A-Z][0-9]+$'); do
    grep -rhw --include='*.rs' --exclude=design.rs "$guarantee" crates/{rcu,table,bucket,map}/{src,tests} | grep -v 'are the guarantees of' >/dev/null ||
      fail "no test of crates/$crate cites $guarantee"
  done
done
# Each test program links the watchdog. (Models run for long, and have bounds of their own.)
for program in crates/*/src/lib.rs crates/*/tests/*.rs crates/*/tests/*/main.rs; do
  case $program in */loom.rs | */loom/main.rs | crates/testing/src/*) continue ;; esac
  grep -q 'relativist_testing' "$program" || fail "$program lacks \`use relativist_testing as _;\`"
done
# CI uses each file in deploy/: a script, a test or another file there names it. (Helm and Grafana
# find some by their place. ci/chart.py renders and checks all templates, and ci/grafana.py all that
# is provisioned.)
find deploy ! -type d ! -path '*/templates/*' ! -name 'values.*' ! -name Chart.yaml ! -path '*/provisioning/*' |
  while read -r file; do
    name=${file##*/} folder=${file%/*}
    grep -rqF --exclude="$name" -- "${folder##*/}/$name" .ci ci crates/*/tests deploy ||
      fail "nothing in CI uses $file"
  done
