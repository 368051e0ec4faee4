#!/usr/bin/env bash
# Breaks the algorithms one step at a time (src/mutation.rs of each crate), and demands that a test notices: each line of
# crates/*/tests/mutations.txt says "mutation test-binary test-name [hangs]". A mutation that survives fails the script; a test
# that does not end has noticed only where the table says that it hangs.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
limit=240
crates="rcu map baselines"

# Link-time optimisation costs minutes here, and brings nothing.
export CARGO_PROFILE_RELEASE_LTO=off

# build NAME FLAGS TARGET...: test binaries, listed as "crate binary path" in $target/mutation-NAME.list.
build() {
  RUSTFLAGS="$2" CARGO_TARGET_DIR="$target/mutation-$1" cargo test --locked --release --no-run \
    "${@:3}" --message-format json 2>"$target/mutation-$1.log" |
    sed -nE 's/.*"kind":\["(lib|test)"\].*"name":"([^"]+)","src_path":"[^"]*crates\/(rcu|map|baselines)\/[^"]*".*"executable":"([^"]+)".*/\3 \1 \2 \4/p' |
    awk '{ print $1, ($2 == "lib" ? "lib" : $3), $4 }' >"$target/mutation-$1.list" ||
    { cat "$target/mutation-$1.log" >&2; exit 1; }
}
mkdir -p "$target"
build plain "--cfg relativist_mutation" --package relativist-rcu --package relativist --package relativist-baselines --lib --tests
build loom "--cfg relativist_mutation --cfg relativist_loom" --package relativist-rcu --package relativist --lib --test loom
build shuttle "--cfg relativist_mutation --cfg relativist_loom --cfg relativist_shuttle" --package relativist --test shuttle

# executable CRATE BINARY: its path. `loom`, `loom-lib` and `shuttle` are of builds of their own.
executable() {
  local list=plain binary=$2
  case $2 in loom | shuttle) list=$2 ;; loom-lib) list=loom binary=lib ;; esac
  awk -v crate="$1" -v binary="$binary" '$1 == crate && $2 == binary { print $3 }' "$target/mutation-$list.list"
}

# attempt CRATE MUTATION BINARY TEST: runs one test, and sets $status.
attempt() {
  local path output
  path=$(executable "$1" "$3")
  [ -n "$path" ] || { echo "mutation: crates/$1 has no test binary $3" >&2; exit 1; }
  status=0
  output=$(cd "crates/$1" && RELATIVIST_TORTURE_SECONDS=$seconds RELATIVIST_STRESS_SECONDS=$seconds \
    RELATIVIST_STRESS_RESIZES=$((seconds * 500)) RELATIVIST_MUTATION=$2 timeout "$limit" "$path" --exact "$4" 2>&1) || status=$?
  grep -q 'running 1 test' <<<"$output" || { echo "mutation: $1/$3 has no test $4" >&2; exit 1; }
}

table() { grep -vE '^ *(#|$)' "crates/$1/tests/mutations.txt"; }

# The same tests must pass without a mutation, or else they notice nothing. (Of the models, ci/loom.sh and ci/shuttle.sh see to that.)
seconds=1
for crate in $crates; do
  while read -r binary test; do
    attempt "$crate" none "$binary" "$test"
    [ "$status" -eq 0 ] || { echo "mutation: $crate/$binary $test fails without a mutation ($status)" >&2; exit 1; }
  done < <(table "$crate" | awk '$2 !~ /^(loom|shuttle)/ { print $2, $3 }' | sort -u)
done

for crate in $crates; do
  unlisted=$(grep -rhoE 'mutation::(is|unless)\("[^"]+"' "crates/$crate/src" | sed 's/.*"\(.*\)"/\1/' | sort -u |
    comm -23 - <(sed 's/ .*//' "crates/$crate/tests/mutations.txt" | sort -u))
  [ -z "$unlisted" ] || { echo "mutation: no test is named for" $unlisted "of crates/$crate" >&2; exit 1; }
done

# judge CRATE MUTATION BINARY TEST [hangs]: says whether the test notices the mutation.
judge() {
  set -euo pipefail
  attempt "$1" "$2" "$3" "$4"
  # What rests on the timing of the hardware gets a second chance.
  [[ $status -ne 0 || $3 == loom* || $3 == shuttle ]] || attempt "$1" "$2" "$3" "$4"
  if [ "$status" -eq 0 ] || { [ "$status" -eq 124 ] && [ "${5-}" != hangs ]; }; then
    echo "SURVIVED  $1 $2: $3 $4 ended with $status"
  else
    echo "noticed   $1 $2: $3 $4"
  fi
}

# Models don't care what runs beside them, and are judged side by side.
seconds=60
export target limit seconds
export -f executable attempt judge
lines=$(for crate in $crates; do table "$crate" | sed "s/^/$crate /"; done)
{
  awk '$3 ~ /^(loom|shuttle)/' <<<"$lines" | xargs -P "$(nproc)" -L 1 bash -c 'judge "$@"' judge
  awk '$3 !~ /^(loom|shuttle)/' <<<"$lines" | while read -r line; do judge $line; done
} | tee "$target/mutation-verdicts.log"
judged=$(wc -l <"$target/mutation-verdicts.log")
echo "$(grep -c ^noticed "$target/mutation-verdicts.log") mutations noticed of $(wc -l <<<"$lines")"
[ "$judged" -eq "$(wc -l <<<"$lines")" ] && ! grep -q ^SURVIVED "$target/mutation-verdicts.log"
