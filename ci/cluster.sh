#!/usr/bin/env bash
# Clients distribute keys over three servers, by themselves, through twemproxy and through memcached's proxy, while
# one server is killed and restarted. Downloads a memcached with its proxy from Debian sid.
set -euo pipefail
cd "$(dirname "$0")/.."

source ci/clients.sh
debian nutcracker nutcracker
target=${CARGO_TARGET_DIR:-target}
memcached=$(realpath -m "$target")/memcached-proxy
libraries=$memcached/usr/lib/x86_64-linux-gnu
[ -e "$memcached" ] || unpack_from sid "$memcached" memcached libc6 libevent-2.1-7t64 liblua5.4-0 libsasl2-2 libssl3t64
cargo build --release --locked
# `cargo test` has built this. The load is small, so any build will do.
[ -x "$target/debug/relativist-bench" ] || cargo build --locked --package relativist-bench
"$python" ci/cluster_session.py "$target/release/relativistd" "$target/debug/relativist-bench" \
  "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" "$memcached/usr/bin/memcached" -u "$(id -un)"
