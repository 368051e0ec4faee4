"""A session by Python's standard library: meta commands by TLS, the resumption of a session, and a connection in plain text."""

import socket
import ssl

from expect import BIG, PORT, TLS, check


def connect(session=None):
    raw = socket.create_connection(("127.0.0.1", PORT), timeout=30)
    return TLS.wrap_socket(raw, server_hostname="localhost", session=session, suppress_ragged_eofs=False)


def ask(client, request, answer):
    client.sendall(request)
    found = b""
    while len(found) < len(answer) and answer.startswith(found):
        found += client.recv(1 << 16) or b"(the end)"
    check(found, answer)


value = b"VA %d\r\n%s\r\n" % (len(BIG), BIG)
with connect() as client:
    ask(client, b"ms big %d T0\r\n%s\r\n" % (len(BIG), BIG), b"HD\r\n")
    ask(client, b"mg big v\r\n", value)
    ask(client, b"mg big v\r\n" * 8 + b"mn\r\n", value * 8 + b"MN\r\n")
    ask(client, b"refresh_certs\r\n", b"OK\r\n")
    ask(client, b"mn\r\n", b"MN\r\n")

with connect() as client:
    ask(client, b"mn\r\n", b"MN\r\n")
    check(client.session_reused, False)
    session = client.session
with connect(session) as client:
    ask(client, b"mn\r\nquit\r\n", b"MN\r\n")
    check(client.session_reused, True)
    # recv raises an error if the server closes the connection without a close_notify.
    check(client.recv(1), b"")

with socket.create_connection(("127.0.0.1", PORT), timeout=30) as plain:
    plain.sendall(b"get key\r\n")
    answer = b"".join(iter(lambda: plain.recv(100), b""))
    check((answer[0], len(answer)), (21, 7))
try:
    strict = ssl.create_default_context()
    strict.wrap_socket(socket.create_connection(("127.0.0.1", PORT), timeout=30), server_hostname="localhost")
    raise SystemExit("a certificate without an authority was accepted")
except ssl.SSLCertVerificationError:
    pass
print("python ssl: all as expected")
