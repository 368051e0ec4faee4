#!/usr/bin/env bash
# Stores two million items in relativistd by an unmodified client, pymemcache. The table grows from its
# smallest size to millions of buckets while items are stored and read back, and shrinks while they are
# deleted. No item may be lost or stale. Then ten thousand slow clients connect; their memory must stay
# bounded.
set -euo pipefail
cd "$(dirname "$0")/.."

source ci/debian.sh
/usr/bin/python3 -c 'import pymemcache' 2>/dev/null || install_packages python3-pymemcache
cargo build --release --locked
source ci/server.sh
start_server -m 1024 -t 2
/usr/bin/python3 ci/scale_session.py "$port" "${1:-2000000}"
stop_server
start_server -m 64 -t 2 -c 11000 -o read_buf_mem_limit=64
python3 ci/slow_session.py "$port" "$server" 64 64
