#!/usr/bin/env bash
# Unmodified clients against relativistd, in all protocols: five libraries for Python, two for Node, one for Go, and libmemcached's
# conformance tool. What is not there is installed: the tool from Debian's packages, libraries below the target folder.
set -euo pipefail
cd "$(dirname "$0")/.."
clients=$(realpath -m "${CARGO_TARGET_DIR:-target}")/interop
python=$clients/python/bin/python

if ! command -v memccapable >/dev/null; then
  sudo=$([ "$(id -u)" -eq 0 ] || echo sudo)
  $sudo apt-get update -qq
  $sudo apt-get install -y -qq libmemcached-tools >/dev/null
fi
if ! cmp -s ci/interop/requirements.txt "$clients/requirements.txt"; then
  python3 -m venv --clear "$clients/python"
  "$python" -m pip install -q --disable-pip-version-check -r ci/interop/requirements.txt
  mkdir -p "$clients/node"
  npm install --silent --no-audit --no-fund --prefix "$clients/node" memjs@1.3.2 memcached@2.2.2
  cp ci/interop/requirements.txt "$clients/requirements.txt"
fi
cargo build --release --locked
source ci/server.sh

start_server -m 64
for session in pymemcache pylibmc bmemcached aiomcache meta; do
  "$python" "ci/interop/${session}_session.py" "$port"
done
node ci/interop/session.mjs "$port" "$clients/node"
(cd ci/interop/go && go run . "$port")

# 1.6.45 takes any word after `delete KEY`, for which the tool still wants an error: it fails those two checks on 1.6.45 itself.
expected=$'ascii delete\nascii delete noreply'
checks=$({ memccapable -h 127.0.0.1 -p "$port" 2>/dev/null || true; } | grep -oE '(ascii|binary) [a-z]+( [a-z]+)* +(\[pass\])?')
failed=$(sed -nE '/\[pass\]/! s/ +$//p' <<<"$checks")
echo "memccapable: $(grep -c '\[pass\]' <<<"$checks") of $(wc -l <<<"$checks") checks passed"
[ "$failed" = "$expected" ] || { echo "interop: memccapable failed: ${failed:-nothing}; expected: $expected" >&2; exit 1; }
[ "$(wc -l <<<"$checks")" -ge 54 ] || { echo "interop: memccapable ran fewer checks than it has" >&2; exit 1; }
stop_server

users=$(mktemp)
echo "somebody:secret" >"$users"
MEMCACHED_SASL_PWDB=$users start_server -S
"$python" ci/interop/bmemcached_session.py "$port" somebody secret
rm "$users"
