#!/usr/bin/env bash
# Breaks the algorithms one step at a time, and demands that a test notices. The ways to break them
# are not in the sources, but in crates/*/tests/mutations.patch: this script applies the patches to
# a copy of the sources, target/mutated, where the environment variable RELATIVIST_MUTATION names
# the mutation that is on. crates/*/tests/mutations.txt names the tests, one a line: "mutation
# test-binary test-name [hangs]". A mutation that survives fails the script; a test that does not
# end has noticed only where the table says that it hangs.
#
#   ci/mutation.sh [CRATE...]  runs those of these folders below crates; all by default
#   ci/mutation.sh --edit      only makes target/mutated, for adding or changing mutations there
#   ci/mutation.sh --save      writes what was changed there since back to the patches
#   ci/mutation.sh --check     only checks that the patches fit, and that the tables name all mutations
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
mutated=$target/mutated
# The folders below crates that have mutations.
crates="core rcu table bucket map cache papers"

# copy: makes target/mutated from the sources, with the patches applied. A patch that no longer fits
# is merged; the lines in conflict are marked as in any merge.
copy() {
  local crate unfit=""
  rm -rf "$mutated" "$target/mutation-apply.log"
  git init -q "$mutated"
  # Patches name the blobs that they were made for. With these a merge is possible.
  realpath "$(git rev-parse --git-common-dir)/objects" >"$mutated/.git/objects/info/alternates"
  git ls-files -z --cached --others --exclude-standard | tar cf - --ignore-failed-read --null -T - | tar xf - -C "$mutated"
  git -C "$mutated" add --all
  git -C "$mutated" -c user.name=mutation -c user.email=mutation@localhost commit -q -m sources
  for crate in $crates; do
    git -C "$mutated" apply --3way "crates/$crate/tests/mutations.patch" >>"$target/mutation-apply.log" 2>&1 ||
      unfit+=" $crate"
  done
  [ -z "$unfit" ] || {
    cat "$target/mutation-apply.log" >&2
    echo "mutation: the patches of$unfit do not fit; run ci/mutation.sh --edit, resolve the conflicts in $mutated, and run ci/mutation.sh --save" >&2
    return 1
  }
}

# check: demands that the mutations in target/mutated are those that the tables name.
check() {
  local crate difference
  ! grep -rnE '^(<<<<<<<|>>>>>>>) ' "$mutated/crates" || { echo "mutation: these conflicts are not resolved" >&2; return 1; }
  for crate in $crates; do
    difference=$(diff <(names "$crate") <(table "$crate" | sed 's/ .*//' | sort -u)) || {
      echo "mutation: of crates/$crate, only the patch (<) or only the table (>) names: $(grep '^[<>]' <<<"$difference" | paste -sd ' ')" >&2
      return 1
    }
  done
}
names() {
  find "$mutated/crates/$1/src" -name '*.rs' -exec cat {} + | tr -d ' \n' |
    grep -oE '(mutation::(is|unless)|wait_for_readers)\("[a-z-]+"' | sed 's/.*("\(.*\)"/\1/' | sort -u
}
table() { grep -vE '^ *(#|$)' "crates/$1/tests/mutations.txt"; }

save() {
  local crate
  git -C "$mutated" add --all
  for crate in $crates; do
    git -C "$mutated" diff --cached --unified=1 --full-index HEAD -- "crates/$crate" >"crates/$crate/tests/mutations.patch"
  done
}

mkdir -p "$target"
case ${1-} in
  --edit) copy; echo "edit $mutated, then run ci/mutation.sh --save"; exit ;;
  --save) check; save; exit ;;
  --check) copy; check; exit ;;
esac
copy
check
crates=${*:-$crates}

# Link-time optimisation costs minutes here, and brings nothing.
export CARGO_PROFILE_RELEASE_LTO=off

# package CRATE: its name.
package() { sed -n '0,/^name = /s/^name = "\(.*\)"/\1/p' "crates/$1/Cargo.toml"; }
# binaries: the test binaries that tables name. `loom` and `loom-lib` are of a build of their own. A
# binary of another crate is "crate:binary".
binaries() {
  local crate
  for crate in $crates; do table "$crate"; done | awk '{ sub(/.*:/, "", $2); print $2 }' | sort -u
}

# build NAME FLAGS TARGET...: test binaries, listed as "crate binary path" in
# $target/mutation-NAME.list.
build() {
  (cd "$mutated" && RUSTFLAGS="$2" CARGO_TARGET_DIR="$target/mutation-$1" cargo test --locked --release --no-run \
    "${packages[@]}" --no-default-features --lib "${@:3}" --message-format json 2>"$target/mutation-$1.log") |
    sed -nE 's/.*"kind":\["(lib|test)"\].*"name":"([^"]+)","src_path":"[^"]*crates\/([a-z]+)\/[^"]*".*"executable":"([^"]+)".*/\3 \1 \2 \4/p' |
    awk '{ print $1, ($2 == "lib" ? "lib" : $3), $4 }' >"$target/mutation-$1.list" ||
    { cat "$target/mutation-$1.log" >&2; exit 1; }
}
packages=() programs=()
for crate in $crates; do packages+=(--package "$(package "$crate")"); done
for binary in $(binaries | grep -vE '^(lib|loom.*)$'); do programs+=(--test "$binary"); done
# Optimisation of the larger suites takes longer than their tests would without it. Some tests of the
# other crates see what the processor reorders only if there are few instructions between.
optimised=()
for crate in core rcu table bucket; do optimised+=("--config=profile.release.package.$(package "$crate").opt-level=3"); done
CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_DEBUG=0 build plain "" "${programs[@]}" "${optimised[@]}"
models=()
for binary in $(binaries | grep -x loom); do models+=(--test "$binary"); done
build loom "--cfg relativist_loom" "${models[@]}"
executable() {
  local list=plain crate=$1 binary=$2
  [[ $binary != *:* ]] || { crate=${binary%%:*} binary=${binary#*:}; }
  case $binary in loom) list=loom ;; loom-lib) list=loom binary=lib ;; esac
  awk -v crate="$crate" -v binary="$binary" '$1 == crate && $2 == binary { print $3 }' "$target/mutation-$list.list"
}

# attempt CRATE MUTATION BINARY TEST SECONDS PATIENCE LIMIT: runs one test, and sets $status. Tests
# that run for a given time do so for SECONDS, those that wait do so for PATIENCE, and after LIMIT
# the test has not ended.
attempt() {
  local path output home=$1
  [[ $3 != *:* ]] || home=${3%%:*}
  path=$(executable "$1" "$3")
  [ -n "$path" ] || { echo "mutation: crates/$1 has no test binary $3" >&2; exit 1; }
  status=0
  output=$(cd "$mutated/crates/$home" && RELATIVIST_TORTURE_SECONDS=$5 RELATIVIST_STRESS_SECONDS=$5 \
    RELATIVIST_STRESS_RESIZES=$(($5 * 500)) RELATIVIST_TEST_PATIENCE=$6 \
    RELATIVIST_MUTATION=$2 timeout "$7" "$path" --exact "$4" 2>&1) || status=$?
  grep -q 'running 1 test' <<<"$output" || { echo "mutation: $1/$3 has no test $4" >&2; exit 1; }
}

# passes CRATE BINARY TEST: demands that a test passes without a mutation.
passes() {
  set -euo pipefail
  attempt "$1" none "$2" "$3" 1 60 240
  [ "$status" -eq 0 ] || { echo "mutation: $1/$2 $3 fails without a mutation ($status)" >&2; return 1; }
}

# judge CRATE MUTATION BINARY TEST [hangs]: says whether the test notices the mutation.
judge() {
  set -euo pipefail
  local try start=$SECONDS
  # A test may miss a mutation by chance, so it runs up to three times. (Models miss none by
  # chance.) Many mutations are noticed because something never happens, so patience is short.
  for try in 1 2 3; do
    if [ "${5-}" = hangs ]; then
      # Without the mutation this takes two seconds.
      attempt "${@:1:4}" 10 10 60
      [ "$status" -ne 124 ] || status=1
    else
      attempt "${@:1:4}" 60 10 240
    fi
    [[ $status -eq 0 && $3 != *loom* ]] || break
  done
  if [ "$status" -eq 0 ] || [ "$status" -eq 124 ]; then
    echo "SURVIVED  $1 $2: $3 $4 ended with $status"
  else
    echo "noticed   $1 $2: $3 $4 ($((SECONDS - start)) s)"
  fi
}

export target mutated
export -f executable attempt passes judge
lines=$(for crate in $crates; do table "$crate" | sed "s/^/$crate /"; done)
# in_parallel FUNCTION: calls it with each line. Many tests only wait, so there are more processes
# than cores.
in_parallel() { xargs -P $((2 * $(nproc))) -L 1 bash -c "$1 \"\$@\"" "$1"; }
# The same tests must pass without a mutation, or else they notice nothing. (ci/loom.sh checks that
# of the models.)
awk '$3 !~ /loom/ { print $1, $3, $4 }' <<<"$lines" | sort -u | in_parallel passes
# Those that hang take longest.
sort -s -k5,5r <<<"$lines" | in_parallel judge | tee "$target/mutation-verdicts.log"
judged=$(wc -l <"$target/mutation-verdicts.log")
echo "$(grep -c ^noticed "$target/mutation-verdicts.log") mutations noticed of $(wc -l <<<"$lines")"
[ "$judged" -eq "$(wc -l <<<"$lines")" ] && ! grep -q ^SURVIVED "$target/mutation-verdicts.log"
