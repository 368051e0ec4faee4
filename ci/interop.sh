#!/usr/bin/env bash
# Unmodified clients against relativistd: pymemcache, and libmemcached's conformance tool.
# Installs them from Debian's packages if they are not there.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v memccapable >/dev/null || ! /usr/bin/python3 -c 'import pymemcache' 2>/dev/null; then
  sudo=$([ "$(id -u)" -eq 0 ] || echo sudo)
  $sudo apt-get update -qq
  $sudo apt-get install -y -qq libmemcached-tools python3-pymemcache >/dev/null
fi
cargo build --release --locked
source ci/server.sh
start_server -m 64

echo "== pymemcache"
/usr/bin/python3 ci/pymemcache_session.py "$port"

echo "== memccapable -a"
# 1.6.45 takes any word after `delete KEY`, for which the tool still wants an error: it fails those two checks on 1.6.45 itself.
expected=$'ascii delete\nascii delete noreply'
checks=$({ memccapable -a -h 127.0.0.1 -p "$port" || true; } | grep -oE 'ascii [a-z]+( noreply)? +(\[pass\])?')
failed=$(sed -nE '/\[pass\]/! s/ +$//p' <<<"$checks")
echo "$(grep -c '\[pass\]' <<<"$checks") of $(wc -l <<<"$checks") checks passed"
[ "$failed" = "$expected" ] || { echo "interop: memccapable failed: ${failed:-nothing}; expected: $expected" >&2; exit 1; }
[ "$(wc -l <<<"$checks")" -ge 27 ] || { echo "interop: memccapable ran fewer checks than it has" >&2; exit 1; }
