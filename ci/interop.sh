#!/usr/bin/env bash
# Runs unmodified clients against relativistd, in all protocols: five libraries for Python, two for Node, one
# each for Go and Java, and libmemcached's conformance tool. Repeats this by TLS with the clients that support
# it, with OpenSSL's tool, and with Python's standard library.
set -euo pipefail
cd "$(dirname "$0")/.."
source ci/clients.sh
debian memccapable libmemcached-tools
debian openssl openssl
debian javac default-jdk-headless
spymemcached=/usr/share/java/spymemcached.jar
debian "$spymemcached" libspymemcached-java
cargo build --release --locked
source ci/server.sh

start_server -m 64
for session in pymemcache pylibmc bmemcached aiomcache meta; do
  "$python" "ci/interop/${session}_session.py" "$port"
done
node ci/interop/session.mjs "$port" "$clients/node"
(cd ci/interop/go && go run . "$port")
timeout 120 java -cp "$spymemcached" ci/interop/java/Session.java "$port"

# memcached 1.6.45 accepts any word after `delete KEY`, but the tool expects an error. So these two checks also
# fail on memcached itself.
expected=$'ascii delete\nascii delete noreply'
checks=$({ timeout 120 memccapable -t 60 -h 127.0.0.1 -p "$port" 2>/dev/null || true; } | grep -oE '(ascii|binary) [a-z]+( [a-z]+)* +(\[pass\])?')
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
stop_server

files=$(mktemp -d)
# certify NAME EXTENSIONS: a certificate by the authority, NAME.crt, and its key.
certify() {
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$files/$1.key" 2>/dev/null |
    openssl x509 -req -days 2 -CA "$files/authority.crt" -CAkey "$files/authority.key" -extfile <(echo "$2") -out "$files/$1.crt" 2>/dev/null
}
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout "$files/authority.key" -out "$files/authority.crt" 2>/dev/null
certify server subjectAltName=DNS:localhost,IP:127.0.0.1
certify client extendedKeyUsage=clientAuth
export MEMCACHED_CA=$files/authority.crt
encrypted=ssl_chain_cert=$files/server.crt,ssl_key=$files/server.key,ssl_ca_cert=$MEMCACHED_CA

# s_client FLAGS...: the server's replies through OpenSSL, which checks its certificate.
s_client() {
  openssl s_client -connect "127.0.0.1:$port" -CAfile "$MEMCACHED_CA" -verify_ip 127.0.0.1 -verify_return_error -ign_eof "$@" \
    <<<$'version\r\nquit\r' 2>&1
}
expect() {
  grep -q "$1" <<<"$2" || { echo "interop: no \"$1\" in what ends in: $(tail -c 1000 <<<"$2")" >&2; exit 1; }
}

start_server -m 64 -Z -o "$encrypted"
for session in pymemcache bmemcached aiomcache tls; do
  "$python" "ci/interop/${session}_session.py" "$port"
done
for version in tls1_2 tls1_3; do
  expect 'VERSION 1.6.45' "$(s_client -$version -sess_out "$files/session")"
  expect '^Reused' "$(s_client -$version -sess_in "$files/session")"
done
expect 'alert handshake failure' "$(s_client -tls1_1 -cipher DEFAULT@SECLEVEL=0 || true)"
stop_server

start_server -m 64 -Z -o "$encrypted,ssl_verify_mode=2"
expect 'VERSION 1.6.45' "$(s_client -cert "$files/client.crt" -key "$files/client.key")"
expect 'alert certificate required' "$(s_client || true)"
echo "openssl s_client: all as expected"
rm -r "$files"
