#!/usr/bin/env bash
# Tests under CPU pressure: ci/pressure.sh [ROUNDS [all]], two rounds by default, at most four at a
# time. They share one core with busy processes of higher priority, one more than the machine has
# cores. Begins no round after a program failed or did not end. Runs the tests of RCU, of the
# tables, the caches and the store; with `all`, those of all crates. Leaves out the slowest tests that
# have one thread: nothing that they do depends on when they run.
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${1:-2}
# Lines of "crate program", see below.
programs='^(core|rcu|table|bucket|map|cache|store|testing) |^papers (lib|readonly|suite) |^server lib '
# They compare with models, fill maps, and compute statistics.
skipped=(model:: does_what_std_does estimates_are_right ages_are_precise the_top_of_a all_samples_are_counted
  random_operations a_flush_after_thousands)
[ "${2:-}" != all ] || programs=.
# Seconds for one program. Most take a few. The watchdog of crates/testing expires earlier, and
# prints the stacks of all threads.
limit=900

# What `cargo test --workspace` builds, as lines of "crate program path". The program `lib` has the
# unit tests of a library.
list=$(cargo test --workspace --locked --no-run --quiet --message-format json |
  sed -nE 's/.*"manifest_path":"[^"]*crates\/([a-z]+)\/Cargo.toml".*"kind":\["([a-z]+)"[^]]*\].*"name":"([^"]+)","src_path".*"profile":\{[^}]*"test":true\}.*"executable":"([^"]+)".*/\1 \2 \3 \4/p' |
  awk '{ print $1, ($2 == "lib" ? "lib" : $3), $4 }' | grep -E "$programs" | sort)
[ "$(wc -l <<<"$list")" -ge 10 ] || { echo "pressure: too few test programs were built: $list" >&2; exit 1; }

core=$(taskset -cp $$ | sed -E 's/.*[^0-9]([0-9]+)$/\1/')
busy=()
trap 'kill "${busy[@]}" 2>/dev/null || true' EXIT
for _ in $(seq 0 "$(nproc)"); do
  taskset -c "$core" bash -c 'while :; do :; done' &
  busy+=($!)
done
# As many tests at a time as on other machines: they put each other under pressure, too.
export RUST_TEST_THREADS=4
# Each torture test of RCU takes this number of seconds. It is short because there are several
# rounds.
export RELATIVIST_TORTURE_SECONDS=1
export RELATIVIST_TEST_SECONDS=850
flags=${skipped[*]/#/--skip=}

# round NUMBER: runs each program once. Prints what a program that failed has printed.
round() {
  local start=$SECONDS log crate program path status
  log=$(mktemp)
  while read -r crate program path; do
    status=0
    (cd "crates/$crate" && exec timeout --kill-after=30 "$limit" nice -n 2 taskset -c "$core" "$path" $flags) </dev/null >"$log" 2>&1 || status=$?
    [ "$status" -eq 0 ] || {
      cat "$log"
      rm "$log"
      [[ $status != 124 && $status != 137 ]] || echo "pressure: crates/$crate $program did not end within $limit s"
      echo "pressure: crates/$crate $program failed in round $1 ($status): $path"
      return 255
    }
  done <<<"$list"
  rm "$log"
  echo "pressure: round $1 of $rounds, $(wc -l <<<"$list") programs, $((SECONDS - start)) s"
}
export -f round
export rounds limit core list flags
# xargs starts no other round when one has returned 255.
seq "$rounds" | xargs -P 4 -I{} bash -c "round {}" || exit 1
