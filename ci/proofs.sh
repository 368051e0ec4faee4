#!/usr/bin/env bash
# Checks the Promela models in proofs/ exhaustively, in the runs of proofs/runs.txt. Repeats runs
# without one of the model's waits or steps; then there must be a counterexample. With --quick,
# leaves out the runs that are marked as slow; with --slow, runs only these. Installs spin from
# Debian's packages if it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

source ci/debian.sh
debian spin spin
debian gcc gcc
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
export proofs=$PWD/proofs directory

# run EXPECTED MODEL FLAG...: explores all states, and compares what it finds: `holds`, or a
# counterexample (`fails`).
run() {
  set -euo pipefail
  local expected=$1 model=$2 level=0 here report errors found=fails
  shift 2
  here=$(mktemp -d -p "$directory")
  cd "$here"
  spin -a "$@" "$proofs/$model.pml" >spin.log || { cat spin.log >&2; return 1; }
  # A counterexample is found quickly, so an optimized build would take longer than the search.
  [ "$expected" = fails ] || level=$search
  gcc "-O$level" -w -DSAFETY -DCOLLAPSE -DVECTORSZ=1024 -o pan pan.c
  report=$(./pan -m10000 -w24)
  # An incomplete search shows nothing.
  ! grep -qE 'max search depth too small|out of memory' <<<"$report" || { echo "$report" >&2; return 1; }
  errors=$(sed -nE 's/.*errors: ([0-9]+).*/\1/p' <<<"$report")
  [ "$errors" -ne 0 ] || found=holds
  echo "$found: $model $* ($(sed -nE 's/^ *([0-9]+) states, stored.*/\1/p' <<<"$report") states)"
  [ "$found" = "$expected" ] || { echo "proofs: $model $* has the wrong result" >&2; return 1; }
}
export -f run

# runs PATTERN: a line for each, from runs.txt, where a line is "[slow] MODEL FLAG... [without
# STEP...]". The pattern is what to remove.
runs() {
  sed -E "s/$1//" "$proofs/runs.txt" | grep -vE '^ *(#|$)' | awk '{
    run = ""
    for (i = 1; i <= NF && $i != "without"; i++) run = run " " $i
    print "holds" run
    for (i++; i <= NF; i++) print "fails" run " -D" $i
  }'
}
all=$(runs '^slow ')
# -O1 makes searches shorter, which pays from some eight million states on. -O2 takes twice as long
# as -O1, and its searches hardly less.
export search=1
[ "${1:-}" != --quick ] || search=g
case ${1:-} in
  --quick) runs '^slow .*' ;;
  --slow) comm -23 <(sort <<<"$all") <(runs '^slow .*' | sort) ;;
  *) echo "$all" ;;
esac | xargs -P "$(nproc)" -I{} bash -c 'run {}'

# Each switch of a model is used by some run.
for model in transition key_move boxed inline; do
  for switch in $(sed -nE 's/^#ifn?def ([A-Z_0-9]+)$/\1/p' "$proofs/$model.pml" | sort -u); do
    grep -qE " $model .*-D$switch( |=|$)" <<<"$all" || { echo "proofs: no run of $model uses $switch" >&2; exit 1; }
  done
done
