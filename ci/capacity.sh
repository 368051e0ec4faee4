#!/usr/bin/env bash
# Counts the items with 10-byte keys and 100-byte values that `-m 64` holds
# before the first eviction, in relativistd and in memcached. Fails below 1.46 times memcached's
# number, and above 20 bytes of overhead per item. The overhead of an item is its share of `-m`,
# less its key and value.
set -euo pipefail
cd "$(dirname "$0")/.."

source ci/debian.sh
debian memcached memcached
cargo build --release --locked
source ci/server.sh
start_server -m 64 -t 2
socket="$server_directory/memcached"
memcached -u "$(id -un)" -m 64 -s "$socket" &
memcached=$!
trap 'kill "$memcached"; stop_server' EXIT
for _ in $(seq 1200); do
  [ ! -S "$socket" ] || break
  kill -0 "$memcached"
  sleep 0.05
done
memcached -V
/usr/bin/python3 ci/capacity_session.py 64 "$port" "$socket"
