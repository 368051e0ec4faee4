#!/usr/bin/env bash
# Checks that take too long for .ci/run: some six hours. Run it before a release, after .ci/run.
# With --list it only names what it runs. CONTRIBUTING.md says when it passed last.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:-}
release=${CARGO_TARGET_DIR:-target}/release

step() {
  [ "$mode" != --list ] || { echo "$*"; return; }
  echo "=== $*"
  local start=$SECONDS
  "$@" </dev/null
  echo "=== $* took $((SECONDS - start)) s"
}

[ "$mode" = --list ] || cargo build --release --locked --package relativistd --package relativist-check
# What CI leaves out: tools that take minutes to build, for files that change rarely...
step ci/chart.py
step ci/release.py --dry-run packages features dependencies bills
# ...tests with the oldest compiler and of counted contention...
step ci/msrv.sh
step ci/competitors.sh --contention
step ci/aarch64.sh --all
step ci/sanitizers.sh
# ...the largest models, of which CI explores some with one preemption instead of two...
step ci/proofs.sh
step ci/loom.sh
step ci/mutation.sh core table papers
# ...and the tests of the protocols, the server's sockets, and the benchmarks.
step ci/pressure.sh 10 all
# CI runs these for less time, or with fewer items.
step ci/scale.py 2000000
step ci/fuzz.sh 600
# Random commands, beside memcached; and how long others wait for a server with hostile clients.
step ci/differential.py
step ci/hostile.py
step env RELATIVIST_TORTURE_SECONDS=600 RELATIVIST_TEST_SECONDS=7200 cargo test --release --locked --package relativist-rcu --test torture_fence --test torture_membarrier
step env RELATIVIST_HOT_KEY_WINDOWS=100 RELATIVIST_TEST_SECONDS=3600 cargo test --release --locked --package relativistd --lib the_top_of_a_fast_load_is_right
step "$release/relativist-check" --exec "$release/relativistd -m 64"
step "$release/relativist-check" --exec "$release/relativistd -m 64" --hand-over 5 --seconds 600
[ "$mode" = --list ] || echo "=== all of ci/extended.sh passed in $SECONDS s"
