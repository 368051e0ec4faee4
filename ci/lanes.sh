# Sourced by .ci/run and ci/extended.sh: runs steps side by side.

work=$(mktemp -d)
begun=0
lanes=()

# in_lanes NUMBER STEP...: runs steps in this number of lanes. A step is a limit in seconds, which
# only a hang should exceed, and a command. Lanes take the steps in the given order, each the next
# one when it has ended its last. A failed step does not keep the others from running.
in_lanes() {
  local pid
  lanes=()
  for _ in $(seq "$1"); do
    lane "${@:2}" &
    lanes+=($!)
  done
  for pid in "${lanes[@]}"; do wait "$pid"; done
  begun=$((begun + $# - 1))
}

# passed: fails unless all steps have passed. What failed is repeated here, where a reader looks
# first.
passed() {
  local verdict passed
  for verdict in "$work"/*/verdict; do
    grep -q '^took' "$verdict" || report "${verdict%/*}" tail -n 60
  done
  passed=$(grep -l '^took' "$work"/*/verdict | wc -l)
  [ "$passed" -eq "$begun" ] || { echo "=== $passed of $begun steps ran" >&2; exit 1; }
}

lane() {
  local step number=$begun
  for step; do
    number=$((number + 1))
    # Another lane may have taken this step.
    mkdir "$work/$number" 2>/dev/null || continue
    step "$work/$number" "${step%% *}" "${step#* }"
  done
}

# step FOLDER LIMIT COMMAND: runs a step, and prints what it printed when it has ended. Writes its
# verdict. Each step runs in a session of its own, so that processes that it leaves behind can be
# found.
step() {
  local folder=$1 limit=$2 command=$3 status=0 TIMEFORMAT='took %0R s (%0U s of CPU)'
  echo "=== $command starts at $SECONDS s"
  echo "$command" >"$folder/command"
  setsid timeout --kill-after=30 "$limit" bash -c "exec $command" </dev/null >"$folder/output" 2>&1 &
  echo $! >"$folder/session"
  { time wait $! || status=$?; } 2>"$folder/time"
  end "$(cat "$folder/session")"
  case $status in
    0) cat "$folder/time" ;;
    124 | 137) echo "FAILED: it did not end within $limit s" ;;
    *) echo "FAILED ($status)" ;;
  esac >"$folder/verdict"
  report "$folder" cat
}

# end SESSION: kills all processes of a session.
end() {
  local file stat processes=()
  for file in /proc/[0-9]*/stat; do
    read -r stat <"$file" || continue
    # The name may contain blanks. After it come state, parent, group and session.
    # shellcheck disable=SC2086
    set -- "$1" ${stat##*) }
    [ "$5" != "$1" ] || [ "$2" = Z ] || processes+=("${stat%% *}")
  done 2>/dev/null
  [ ${#processes[@]} -eq 0 ] || kill -9 "${processes[@]}" 2>/dev/null || true
}

# report FOLDER FILTER...: prints the output of a step, not mixed with that of another one.
report() {
  (
    flock 9
    "${@:2}" <"$1/output"
    echo "=== $(cat "$1/command") $(cat "$1/verdict" 2>/dev/null || echo "was interrupted")"
  ) 9>"$work/lock"
}

finish() {
  local status=$? folder
  [ "$status" -eq 0 ] || kill "${lanes[@]}" 2>/dev/null || true
  for folder in "$work"/*/; do
    [ ! -e "$folder/session" ] || end "$(cat "$folder/session")"
    [ -e "$folder/verdict" ] || [ ! -e "$folder/output" ] || report "$folder" tail -n 40
  done
  [ "$status" -eq 0 ] || echo "=== FAILED after $SECONDS s" >&2
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM
