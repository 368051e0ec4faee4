#!/usr/bin/env bash
# Checks that take too long for .ci/run. They should take some 90 minutes on two idle cores. Run it
# before a release, after .ci/run, some steps of which it goes on with. With --list it only names
# what it runs. CONTRIBUTING.md says when it passed last.
set -euo pipefail
cd "$(dirname "$0")/.."

export CARGO_INCREMENTAL=0
release=${CARGO_TARGET_DIR:-target}/release
check="$release/relativist-check --exec '$release/relativistd -m 64'"
torture="--package relativist-rcu --test torture_fence --test torture_membarrier"
maps="--package relativist --test suite --test panic_safety"
hot_keys="--package relativistd --lib the_top_of_a_fast_load_is_right"

# See ci/lanes.sh. The long steps come first, and neighbours have builds of their own.
steps=(
  # The largest models, of which CI leaves out some, and explores others with one preemption.
  "14400 ci/proofs.sh --slow"
  "7200 ci/loom.sh"
  # All tests that CI runs under sanitizers, for longer, and those of the tables, the cache, and the
  # server's sockets.
  "7200 ci/sanitizers.sh thread"
  "7200 ci/sanitizers.sh address"
  "3600 ci/miri.sh"
  # Three schedules of each test on one busy core: most failures that depend on time show in one.
  "7200 ci/pressure.sh 3 all"
  # The mutations of crates that change rarely.
  "7200 ci/mutation.sh core table papers"
  # Tools that take minutes to build, for files that change rarely.
  "3600 ci/release.py --dry-run packages features dependencies bills"
  "3600 ci/chart.py"
  "3600 ci/packages.sh"
  # Tests with the oldest compiler, of the other crates on another architecture, of what the
  # benchmarks compare, and of counted contention.
  "3600 ci/msrv.sh"
  "3600 ci/aarch64.sh core table memcache papers"
  "1800 ci/competitors.sh"
  "1800 ci/competitors.sh --contention"
  # CI runs these with fewer items, or for less time.
  "1200 ci/scale.py 2000000"
  "1200 ci/fuzz.sh 120"
  "1800 env RELATIVIST_TORTURE_SECONDS=60 cargo test --release --locked $torture"
  "1800 env RELATIVIST_MODEL_CASES=600 RELATIVIST_PANIC_SHARE=16 RELATIVIST_TEST_SECONDS=1700 cargo test --locked $maps -- model:: sets:: survive_each_panic"
  "3600 env RELATIVIST_HOT_KEY_WINDOWS=100 RELATIVIST_TEST_SECONDS=3500 cargo test --release --locked $hot_keys"
  # Random commands: beside memcached, and compared with a model, while the server is replaced, too.
  "1800 ci/differential.py 100000"
  "1200 $check --seconds 300"
  "1200 $check --seconds 120 --hand-over 5"
)
# Latencies need a machine that does nothing else: how long others wait while clients are hostile.
alone=("1200 ci/hostile.py")

if [ "${1:-}" = --list ]; then
  for step in "${steps[@]}" "${alone[@]}"; do echo "${step#* }"; done
  exit
fi
source ci/lanes.sh
in_lanes 1 "1800 cargo build --release --locked --package relativistd --package relativist-check"
in_lanes 2 "${steps[@]}"
in_lanes 1 "${alone[@]}"
passed
echo "=== all of ci/extended.sh passed in $SECONDS s"
