#!/usr/bin/env bash
# A real Prometheus scrapes three servers, one of them with tenants. It must answer each query of the dashboard, and evaluate
# each alert. The alert rules have tests of their own, and ci/grafana.py checks Grafana's files. Installs Prometheus from
# Debian's packages, if it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

source ci/debian.sh
debian promtool --no-install-recommends prometheus
debian openssl openssl
debian /usr/lib/python3/dist-packages/yaml python3-yaml
promtool check config deploy/prometheus/prometheus.yml
promtool test rules deploy/prometheus/relativistd.rules.test.yml
/usr/bin/python3 ci/grafana.py
cargo build --release --locked
target=${CARGO_TARGET_DIR:-target}
# `cargo test` has built this. The load is small, so any build will do.
[ -x "$target/debug/relativist-bench" ] || cargo build --locked --package relativist-bench
python3 ci/watch_session.py "$target/release/relativistd" "$target/debug/relativist-bench"
