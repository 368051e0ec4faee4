#!/usr/bin/env bash
# The workbench with its competitors in C and C++: tests their adapters against std's map, and runs
# every workload once. The same for Segcache and foyer. Compares the server with memcached, and runs
# the mirror between the two. With --contention it only tests the counters of lock contention in all
# crates, which need builds of their own. Installs the competitors from Debian's packages if they are
# missing. Downloads the headers of Boost from Debian 13, because those of Debian 12 are too old.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" = --contention ]; then
  counting=(--locked --features contention)
  cargo test "${counting[@]}" --package relativist-rcu --package relativist-table --package relativist-papers --lib contention
  cargo build "${counting[@]}" --package relativist-papers
  cargo test "${counting[@]}" --package relativistd --test suite contention
  output=$("${CARGO_TARGET_DIR:-target}/debug/relativist-papers" resize --table mutex,relativist --resizer --readers 1 \
    --entries 64 --shift1 3 --shift2 5 --seconds 0.01 --runs 1)
  for lock in mutex map_resizer; do
    grep -E "^\\| .* \\| +$lock \\|" <<<"$output" >/dev/null || { echo "competitors: resize does not report $lock" >&2; exit 1; }
  done
  exit
fi

packages=(liburcu-dev memcached)
source ci/debian.sh
dpkg-query -W "${packages[@]}" >/dev/null 2>&1 || install_packages "${packages[@]}"
boost=$(realpath -m "${CARGO_TARGET_DIR:-target}")/boost
[ -e "$boost" ] || unpack_from trixie "$boost" libboost1.88-dev
export CPLUS_INCLUDE_PATH=$boost/usr/include
build=(--locked --package relativist-bench --features "liburcu,boost,segcache,foyer,mini-moka")
cargo test "${build[@]}" --lib
# Tests of programs need the program. `cargo build` would build dependencies again, without features
# that only tests need.
cargo test "${build[@]}" --test interruption --no-run

program=${CARGO_TARGET_DIR:-target}/debug/relativist-bench
messages=${CARGO_TARGET_DIR:-target}/competitors.log
# bench FLAGS...: runs the workbench, and prints its messages only if it fails.
bench() {
  local status=0
  "$program" "$@" 2>"$messages" || status=$?
  [ "$status" -eq 0 ] || cat "$messages" >&2
  return "$status"
}
# All tables take their memory from mimalloc: it has to define malloc for the whole program.
nm -D "$program" | grep ' T malloc$' >/dev/null || { echo "competitors: malloc is not mimalloc's" >&2; exit 1; }
output=$(bench compare --entries 1000 --rounds 1 --seconds 0.01)
for competitor in cds_lfht boost::concurrent_flat_map; do
  # Eight workloads print a table each, clear and many two, the matrix six (two distributions, three
  # shares of updates), replace four of these, and latency six.
  count=$(grep -c "^| $competitor " <<<"$output")
  [ "$count" -eq 28 ] || { echo "competitors: $competitor is in $count tables only" >&2; exit 1; }
done
output=$(bench compare engines --entries 2^12 --rounds 1 --seconds 0.001)
# Six workloads print a table each, and evict another one.
count=$(grep -c "^| segcache " <<<"$output")
[ "$count" -eq 7 ] || { echo "competitors: segcache is in $count tables only" >&2; exit 1; }

output=$(bench compare caches --entries 2^12 --rounds 1 --seconds 0.001)
# In the tables of six workloads.
count=$(grep -c "^| foyer " <<<"$output")
[ "$count" -eq 6 ] || { echo "competitors: foyer is in $count tables only" >&2; exit 1; }

# After tests of the whole workspace the server exists.
[ -x "${program%/*}/relativistd" ] || cargo build --locked --package relativistd
# This build is not optimised, and may miss the targets: then the exit status is 1. On a busy machine
# a process may not run for half a second.
output=$(bench serving --rounds 1 --seconds 5 --threads 1 --workload get50,set) || [ $? -eq 1 ]
grep "^| get50 .* server CPU/request " <<<"$output" >/dev/null || { echo "competitors: get50 was not compared with memcached" >&2; exit 1; }
echo "competitors: all of them took part"

# The mirror between memcached and the server, under load: there are no differences.
sockets=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$sockets"' EXIT
exists() {
  for _ in $(seq 400); do
    [ ! -S "$sockets/$1" ] || return 0
    sleep 0.05
  done
  echo "competitors: $1 does not listen" >&2
  return 1
}
memcached -u "$(id -un)" -s "$sockets/memcached" &
"${program%/*}/relativistd" -u "$(id -un)" -p 0 -s "$sockets/relativistd" &
exists memcached
exists relativistd
"$program" mirror --listen "unix:$sockets/mirror" --memcached "unix:$sockets/memcached" --relativistd "unix:$sockets/relativistd" >"$sockets/report" 2>&1 &
mirror=$!
exists mirror
for protocol in classic meta; do
  bench load --server "unix:$sockets/mirror" --protocol $protocol --sets 30 --clients 4 --items 500 --rounds 1 --seconds 2 >/dev/null
done
kill -INT "$mirror"
wait "$mirror" || { cat "$sockets/report" >&2; exit 1; }
grep -E "^\| agree +\| +[1-9]" "$sockets/report"
