#!/usr/bin/env bash
# Checks the Promela models in proofs/ exhaustively, as proofs/runs.txt lists them; and each again with one of its waits or steps left
# out, for which there must be a counterexample. Installs spin from Debian's packages if it is not there.
set -euo pipefail
cd "$(dirname "$0")/.."

source ci/debian.sh
debian spin spin
debian gcc gcc
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
export proofs=$PWD/proofs directory

# run EXPECTED MODEL FLAG...: explores all states, and compares what it finds: `holds`, or a counterexample (`fails`).
run() {
  set -euo pipefail
  local expected=$1 model=$2 level=0 here report errors found=fails
  shift 2
  here=$(mktemp -d -p "$directory")
  cd "$here"
  spin -a "$@" "$proofs/$model.pml" >spin.log || { cat spin.log >&2; return 1; }
  # Counterexamples are found at once, so it is the compiler that takes the time.
  [ "$expected" = fails ] || level=2
  gcc "-O$level" -w -DSAFETY -DCOLLAPSE -DVECTORSZ=1024 -o pan pan.c
  report=$(./pan -m10000 -w22)
  # A search that was cut short has shown nothing.
  ! grep -qE 'max search depth too small|out of memory' <<<"$report" || { echo "$report" >&2; return 1; }
  errors=$(sed -nE 's/.*errors: ([0-9]+).*/\1/p' <<<"$report")
  [ "$errors" -ne 0 ] || found=holds
  echo "$found: $model $* ($(sed -nE 's/^ *([0-9]+) states, stored.*/\1/p' <<<"$report") states)"
  [ "$found" = "$expected" ] || { echo "proofs: $model $* was to be found otherwise" >&2; return 1; }
}
export -f run

# A line of runs.txt is "MODEL FLAG..." or "MODEL FLAG... without STEP...".
runs=$(grep -vE '^ *(#|$)' "$proofs/runs.txt" | awk '{
  run = ""
  for (i = 1; i <= NF && $i != "without"; i++) run = run " " $i
  print "holds" run
  for (i++; i <= NF; i++) print "fails" run " -D" $i
}')
xargs -P "$(nproc)" -I{} bash -c 'run {}' <<<"$runs"

# Whatever a model can leave out is left out by some run.
for model in transition rename; do
  for switch in $(sed -nE 's/^#ifn?def ([A-Z_0-9]+)$/\1/p' "$proofs/$model.pml" | sort -u); do
    grep -qE " $model .*-D$switch( |=|$)" <<<"$runs" || { echo "proofs: no run of $model uses $switch" >&2; exit 1; }
  done
done
