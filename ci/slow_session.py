"""Ten thousand clients that stop: half in the middle of sending a value, half without reading replies. Meanwhile the server's memory must stay
bounded, and the server must serve other clients: slow_session.py PORT PROCESS LIMITS_IN_MIB, of items and of connections' buffers."""

import re
import resource
import socket
import sys
from pathlib import Path

PORT, PROCESS, ITEMS, BUFFERS = map(int, sys.argv[1:5])
CLIENTS = 10_000
BIG = b"v" * 200_000


def connect(receives=None):
    client = socket.socket()
    if receives:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    client.settimeout(60)
    client.connect(("127.0.0.1", PORT))
    return client


def ask(client, request, end):
    client.sendall(request)
    answer = b""
    while not answer.endswith(end):
        some = client.recv(1 << 20)
        assert some, f"closed after {answer[-100:]!r}"
        answer += some
    return answer


def statistic(client, name):
    return int(re.search(rf"STAT {name} (\d+)", ask(client, b"stats\r\n", b"END\r\n").decode())[1])


def resident():
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{PROCESS}/status").read_text())[1]) << 10


soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
CLIENTS = min(CLIENTS, hard - 100)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

brisk = connect()
assert ask(brisk, b"set small 0 0 5\r\nsmall\r\n", b"\r\n") == b"STORED\r\n"
assert ask(brisk, b"set big 0 0 %d\r\n%s\r\n" % (len(BIG), BIG), b"\r\n") == b"STORED\r\n"
slow, most = [], 0
for index in range(CLIENTS):
    client = connect(receives=4096)
    try:
        if index % 2:
            client.sendall(b"set slow%d 0 0 1000000\r\n%s" % (index, BIG[:30_000]))
        else:
            client.sendall(b"get big big big big\r\n")
    except OSError:
        pass  # cut off already, for what it holds
    slow.append(client)
    if index % 100 == 0:
        # A client for which large replies wait may be closed too.
        assert b"\r\nsmall\r\n" in ask(brisk, b"get small\r\n", b"END\r\n"), "other clients are served"
        most = max(most, resident())
closed, connected = statistic(brisk, "read_buf_oom"), statistic(brisk, "curr_connections")
most = max(most, resident())
bound = ITEMS * 115 // 100 + 32 + BUFFERS
print(f"{CLIENTS} slow clients, {connected} still connected: up to {most >> 20} MiB, of {bound}; {closed} were cut off")
assert most >> 20 <= bound, "too much memory"
assert closed > 0, "the clients did not reach the limit"
for client in slow:
    client.close()
assert ask(brisk, b"get slow1 big\r\n", b"END\r\n").count(BIG) == 1, "half a value was stored, or the whole one is gone"
