#!/usr/bin/env bash
# Tests the status page in headless Chromium: its numbers under load, on a desktop and on a phone, in light and
# dark mode, by keyboard, and by axe's rules for accessibility; and of a server without tenants. Takes screenshots: ci/page.sh [FOLDER]. Installs
# Chromium from Debian's packages, and its driver from npm, if they are missing.
set -euo pipefail
cd "$(dirname "$0")/.."

source ci/debian.sh
debian chromium --no-install-recommends chromium fonts-dejavu-core
debian npm nodejs npm
modules=$(realpath -m "${CARGO_TARGET_DIR:-target}")/page
tools=(playwright-core@1.65.1 axe-core@4.14.1)
if [ "$(cat "$modules/tools" 2>/dev/null)" != "${tools[*]}" ]; then
  mkdir -p "$modules"
  retry npm install --silent --no-audit --no-fund --prefix "$modules" "${tools[@]}"
  echo "${tools[*]}" >"$modules/tools"
fi

cargo build --release --locked
source ci/server.sh
free_port() {
  python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

admin=$(free_port)
start_server -m 8 -t 1 --admin "$admin"
node ci/page_session.mjs without-tenants "$admin" "$port" "$modules" "$(command -v chromium)"
stop_server
admin=$(free_port)
users=$(mktemp)
cat >"$users" <<'END'
visitor:secret
[tenant shop memory=32m]
shop:secret
[tenant search memory=32m prefix=search:]
search:secret
END
start_server -m 128 -t 2 --admin "$admin" -Y "$users"
rm "$users"
node ci/page_session.mjs all "$admin" "$port" "$modules" "$(command -v chromium)" "${1:-$modules}"
