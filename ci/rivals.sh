#!/usr/bin/env bash
# The workbench with its rivals in C and C++: their adapters against std's map, and a smoke of every work. And with locks that are counted,
# here and in the other crates. And the server against its rival.
# Installs them from Debian's packages if they are not there.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(liburcu-dev libtbb-dev libcuckoo-dev memcached)
source ci/debian.sh
dpkg-query -W "${packages[@]}" >/dev/null 2>&1 || install_packages "${packages[@]}"
build=(--locked --package relativist-bench --features "liburcu,tbb,cuckoo,contention")
cargo test "${build[@]}" --lib
cargo build "${build[@]}"
counting=(--locked --features contention)
cargo test "${counting[@]}" --package relativist-rcu --package relativist --package relativist-baselines --lib contention
cargo test "${counting[@]}" --package relativistd --test suite contention

program=${CARGO_TARGET_DIR:-target}/debug/relativist-bench
# All tables take their memory from mimalloc: it has to define malloc for the whole program.
nm -D "$program" | grep ' T malloc$' >/dev/null || { echo "rivals: malloc is not mimalloc's" >&2; exit 1; }
works=hit,miss,matrix,mixes,grow,latency,remove,clear,iterate,memory,churn
output=$("$program" compare --work $works --entries 1000 --rounds 1 --seconds 0.01 2>/dev/null)
for rival in cds_lfht tbb::concurrent_hash_map libcuckoo; do
  # Eleven works, of which the matrix has two distributions and three shares of updates, and mixes are three.
  count=$(grep -c "^| $rival " <<<"$output")
  [ "$count" -ge 18 ] || { echo "rivals: $rival is in $count tables only" >&2; exit 1; }
done

# Tests of the whole workspace have built it.
[ -x "${program%/*}/relativistd" ] || cargo build --locked --package relativistd
# This build is not optimised, and may miss the targets: then the exit status is 1.
output=$("$program" serving --quick --threads 1 --work get50,set 2>/dev/null) || [ $? -eq 1 ]
for over in memcached echo; do
  grep "^| get50 .* $over " <<<"$output" >/dev/null || { echo "rivals: get50 was not compared with $over" >&2; exit 1; }
done
echo "rivals: all took part"

output=$("$program" resize --table mutex,relativist --resizer --readers 1 --entries 64 --shift1 3 --shift2 5 --seconds 0.01 --runs 1 2>/dev/null)
for lock in mutex map_resizer; do
  grep -E "^\\| .* \\| +$lock \\|" <<<"$output" >/dev/null || { echo "rivals: resize tells nothing of $lock" >&2; exit 1; }
done
