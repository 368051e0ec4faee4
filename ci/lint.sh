#!/usr/bin/env bash
# Formatting, lints, documentation without warnings, and those rules of this
# project that a script can check.
set -euo pipefail
cd "$(dirname "$0")/.."
layering=$(mktemp)
trap 'rm "$layering"' EXIT

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
# Layering, see ARCHITECTURE.md.
none "the cache sees no sockets and no protocol" 'std::net|mio::|socket2|relativist_memcache|relativistd::' crates/store/src
none "the codec does no I/O and has no clock" 'std::(net|fs|time)|stdin|stdout' crates/memcache/src
none "the table knows no server" 'relativistd|memcache' crates/core/src crates/table/src crates/map/src crates/rcu/src crates/cache/src
# Modules of the cache import only modules of their own layer and below. (Unit tests, at the end of a file, may use all.)
layers=(leaves memory item eviction cache)
leaves="clock expiry sizing usage"
for lower in 0 1 2 3; do
  upper=$(IFS='|'; echo "${layers[*]:lower+1}")
  files=${layers[lower]}
  [ "$files" != leaves ] || files=$leaves
  for file in $files; do
    find "crates/store/src/$file.rs" "crates/store/src/$file" -name '*.rs' 2>/dev/null
  done | while read -r file; do
    sed '/^#\[cfg(.*test/,$d' "$file" | grep -nE "^[^/]*crate::(\{|$upper)\b" | sed "s|^|$file:|"
  done
done >"$layering" || true
[ ! -s "$layering" ] || { cat "$layering"; echo "lint: a module of the cache imports from a layer above" >&2; exit 1; }
# Loom can replace the atomics only if they come from one module. (Workers don't run under loom.)
none "atomics come from the sync module" '^[^/]*(std|core)::sync::atomic' \
  $(find crates/core/src crates/table/src crates/map/src crates/rcu/src crates/cache/src -name '*.rs' ! -name sync.rs ! -name worker.rs ! -name background.rs)
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
  crates/rcu crates/map crates/baselines crates/capi fuzz
none "unfinished code" 'todo!|unimplemented!|dbg!\(' crates
