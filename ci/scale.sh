#!/usr/bin/env bash
# Two million items through relativistd by an unmodified client, pymemcache: the table grows from its smallest size to millions of
# buckets while they are stored and read back, and shrinks back while they are deleted. Nothing may be lost or stale. Then ten thousand slow
# clients, of which all together may hold a bounded amount of memory.
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
