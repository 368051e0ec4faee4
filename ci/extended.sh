#!/usr/bin/env bash
# Checks that take too long for .ci/run: some five hours. Run it before a release, after .ci/run. With
# --list it only names what it runs. CONTRIBUTING.md says when it passed last.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:-}
target=${CARGO_TARGET_DIR:-target}

step() {
  [ "$mode" != --list ] || { echo "$*"; return; }
  echo "=== $*"
  local start=$SECONDS
  "$@" </dev/null
  echo "=== $* took $((SECONDS - start)) s"
}

[ "$mode" = --list ] || cargo build --release --locked --package relativistd --package relativist-check
# The tests of all crates; CI leaves out those of the protocols, the server's sockets, and the workbench.
step ci/pressure.sh 10 all
# CI explores the largest models with one preemption instead of two.
step ci/loom.sh
# CI stores half as many items.
step ci/scale.py 2000000
step ci/fuzz.sh 600
step env RELATIVIST_TORTURE_SECONDS=600 RELATIVIST_TEST_SECONDS=7200 cargo test --release --locked --package relativist-rcu --test torture_fence --test torture_membarrier
step env RELATIVIST_HOT_KEY_WINDOWS=100 cargo test --release --locked --package relativistd --lib the_top_of_a_fast_load_is_right
step "$target/release/relativist-check" --exec "$target/release/relativistd -m 64"
step "$target/release/relativist-check" --exec "$target/release/relativistd -m 64" --hand-over 5 --seconds 600
[ "$mode" = --list ] || echo "=== all of ci/extended.sh passed in $SECONDS s"
