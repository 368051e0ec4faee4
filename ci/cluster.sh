#!/usr/bin/env bash
# Clients distribute keys over three servers, by themselves and through twemproxy, while one server is
# killed and restarted.
set -euo pipefail
cd "$(dirname "$0")/.."

source ci/clients.sh
debian nutcracker nutcracker
cargo build --release --locked
"$python" ci/cluster_session.py "${CARGO_TARGET_DIR:-target}/release/relativistd"
