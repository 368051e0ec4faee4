#!/usr/bin/env bash
# Checks the Promela models in proofs/ exhaustively, as proofs/runs.txt lists them; and each again with one of its waits or steps left
# out, for which there must be a counterexample. Installs spin from Debian's packages if it is not there.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v spin >/dev/null; then
  sudo=$([ "$(id -u)" -eq 0 ] || echo sudo)
  $sudo apt-get update -qq
  $sudo apt-get install -y -qq spin gcc >/dev/null
fi
proofs=$PWD/proofs
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"

# search MODEL LEVEL FLAG...: explores all states, by a program compiled at that level of optimisation; sets $errors and $states.
search() {
  local model=$1 level=$2 report
  shift 2
  spin -a "$@" "$proofs/$model.pml" >spin.log || { cat spin.log >&2; exit 1; }
  gcc "-O$level" -w -DSAFETY -DCOLLAPSE -DVECTORSZ=1024 -o pan pan.c
  report=$(./pan -m10000 -w22)
  # A search that was cut short has shown nothing.
  ! grep -qE 'max search depth too small|out of memory' <<<"$report" || { echo "$report" >&2; exit 1; }
  errors=$(sed -nE 's/.*errors: ([0-9]+).*/\1/p' <<<"$report")
  states=$(sed -nE 's/^ *([0-9]+) states, stored.*/\1/p' <<<"$report")
}

failed=0
while read -r model line; do
  read -ra flags <<<"${line%%without*}"
  read -ra left_out <<<"$([[ $line == *without* ]] && echo "${line##*without}")"
  search "$model" 2 "${flags[@]}"
  echo "$model${flags[*]:+ ${flags[*]}}: $states states, $errors errors"
  [ "$errors" -eq 0 ] || failed=1
  for step in "${left_out[@]}"; do
    search "$model" 0 "${flags[@]}" "-D$step"
    if [ "$errors" -eq 0 ]; then
      echo "SURVIVED  $model ${flags[*]} $step"
      failed=1
    else
      echo "noticed   $model ${flags[*]} $step"
    fi
  done
done < <(grep -vE '^ *(#|$)' "$proofs/runs.txt")

# Whatever a model can leave out is left out by some run.
for model in "$proofs"/*.pml; do
  for switch in $(sed -nE 's/^#ifn?def ([A-Z_0-9]+)$/\1/p' "$model" | sort -u); do
    grep "^$(basename "$model" .pml) " "$proofs/runs.txt" | grep -qE "[ D]$switch( |=|$)" ||
      { echo "proofs: no run of $model uses $switch" >&2; failed=1; }
  done
done
exit "$failed"
