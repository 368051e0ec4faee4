# Sourced by the scripts that need a running server: start_server FLAGS... sets $port and $server (its process). The server is
# stopped when the script exits.

start_server() {
  server_directory=$(mktemp -d)
  local file="$server_directory/port"
  MEMCACHED_PORT_FILENAME="$file" "${CARGO_TARGET_DIR:-target}/release/relativistd" -p -1 -l 127.0.0.1 "$@" &
  server=$!
  trap stop_server EXIT
  for _ in $(seq 1200); do
    if [ -s "$file" ]; then
      port=$(sed -n 's/^TCP INET: //p' "$file")
      return
    fi
    kill -0 "$server" || { echo "the server exited" >&2; return 1; }
    sleep 0.05
  done
  echo "the server did not write $file" >&2
  return 1
}

stop_server() {
  kill "$server" 2>/dev/null || true
  # The server must end by itself, without an error. If it hangs, kill it and fail.
  for _ in $(seq 1200); do
    kill -0 "$server" 2>/dev/null || break
    sleep 0.05
  done
  ! kill -9 "$server" 2>/dev/null || echo "the server did not stop on SIGTERM" >&2
  rm -rf "$server_directory"
  wait "$server" || { echo "the server ended with status $?" >&2; exit 1; }
}
