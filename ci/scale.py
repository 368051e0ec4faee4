#!/usr/bin/python3
"""Stores two million items in relativistd by an unmodified client, pymemcache: ci/scale.py [ITEMS].
The table grows from its smallest size to millions of buckets while items are stored and read back,
and shrinks while they are deleted. No item may be lost or stale. Then ten thousand slow clients
connect: half stop in the middle of sending a value, half do not read replies. The server's memory
must stay bounded, and it must serve other clients."""

import re
import resource
import socket
import sys
import time
from pathlib import Path

from support import PATIENCE, Server, build_server, debian, expect, wait_until

debian("/usr/lib/python3/dist-packages/pymemcache", "python3-pymemcache")
from pymemcache.client.base import Client

BATCH = 2000
CLIENTS = 10_000
BIG = b"v" * 200_000
# For the slow clients: MiB for items, and for connections' buffers.
ITEM_LIMIT, BUFFER_LIMIT = 64, 64


def main():
    program, items = build_server(), int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    with Server(program, "-m", "1024", "-t", "2") as server:
        Scale(server.port, items).run()
    with Server(program, "-m", ITEM_LIMIT, "-t", "2", "-c", "11000", "-o", f"read_buf_mem_limit={BUFFER_LIMIT}") as server:
        slow_clients(server)


# --- Millions of items


class Scale:
    def __init__(self, port, items):
        self.items = items
        self.client, self.watcher = (Client(("127.0.0.1", port), timeout=PATIENCE) for _ in range(2))

    def run(self):
        smallest, at_start = self.table()
        expect(at_start == 0, f"the server holds {at_start} items already")
        grown = self.phase("store", self.store)
        expect(grown == sorted(grown), f"the table shrank while it was filled: {grown}")
        wait_until("table that is large enough", lambda: 2 ** self.table()[0] * 4 >= self.items)
        # The table may skip sizes: the worker resizes it to what it needs at that time.
        expect(len(set(grown)) >= 3, f"few sizes seen while it grew: {grown}")
        self.phase("overwrite every tenth", self.overwrite)
        self.phase("read back", self.verify)
        expect(self.table()[1] == self.items, self.table())
        shrunk = self.phase("delete", self.delete)
        wait_until("table of its smallest size", lambda: self.table() == (smallest, 0))
        expect(len(set(shrunk)) >= 3, f"few sizes seen while it shrank: {shrunk}")
        print(", ".join(f"{key.decode()} {value}" for key, value in self.client.stats("table").items()))
        print(f"{self.items:,} items stored, read back and deleted: none lost, none stale")

    def table(self):
        stats = self.watcher.stats()
        return int(stats[b"hash_power_level"]), int(stats[b"curr_items"])

    def phase(self, name, work):
        """Runs `work` on each batch; returns the sizes of the table that were seen, as powers of
        two."""
        started, levels = time.monotonic(), []
        for number, start in enumerate(range(0, self.items, BATCH)):
            work(range(start, min(start + BATCH, self.items)))
            if number % 10 == 0:
                levels.append(self.table()[0])
        levels.append(self.table()[0])
        rate = self.items / (time.monotonic() - started)
        print(f"{name}: {rate:,.0f} items/s, 2^{levels[0]} to 2^{levels[-1]} buckets, {len(set(levels))} sizes seen")
        return levels

    def store(self, batch):
        failed = self.client.set_many({f"key{n}": value_of(n, 1) for n in batch}, noreply=False)
        expect(not failed, failed)

    def overwrite(self, batch):
        failed = self.client.set_many({f"key{n}": value_of(n, 2) for n in batch if version_of(n) == 2}, noreply=False)
        expect(not failed, failed)

    def verify(self, batch):
        found = self.client.get_many([f"key{n}" for n in batch])
        for n in batch:
            value = found.get(f"key{n}")
            expect(value == value_of(n, version_of(n)), f"key{n}: found {value}")

    def delete(self, batch):
        # delete_many sends a request per key and waits for each; without replies the batch goes out
        # at once.
        self.client.delete_many([f"key{n}" for n in batch], noreply=True)
        # The server has executed the deletes by now, because the same connection sent them. The
        # next batch must still be there.
        expect(self.client.get_many([f"key{n}" for n in batch]) == {}, "deleted items are found")
        self.verify(range(batch.stop, min(batch.stop + 100, self.items)))


def value_of(number, version):
    return f"{number}:{version}".encode()


def version_of(number):
    return 2 if number % 10 == 0 else 1


# --- Slow clients


def slow_clients(server):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    brisk = connect(server.port)
    expect(ask(brisk, b"set small 0 0 5\r\nsmall\r\n", b"\r\n") == b"STORED\r\n", "an item is not stored")
    expect(ask(brisk, b"set big 0 0 %d\r\n%s\r\n" % (len(BIG), BIG), b"\r\n") == b"STORED\r\n", "an item is not stored")
    slow, most = [], 0
    for index in range(min(CLIENTS, hard - 100)):
        slow.append(slow_client(server.port, index))
        if index % 100 == 0:
            # A client for which large replies wait may be closed too.
            expect(b"\r\nsmall\r\n" in ask(brisk, b"get small\r\n", b"END\r\n"), "other clients are not served")
            most = max(most, resident(server))
    closed, connected = statistic(brisk, "read_buf_oom"), statistic(brisk, "curr_connections")
    most = max(most, resident(server)) >> 20
    bound = ITEM_LIMIT * 115 // 100 + 32 + BUFFER_LIMIT
    print(f"{len(slow)} slow clients, {connected} still connected: up to {most} MiB, of {bound}; {closed} were cut off")
    expect(most <= bound, "too much memory")
    expect(closed > 0, "the clients did not reach the limit")
    for client in slow:
        client.close()
    values = ask(brisk, b"get slow1 big\r\n", b"END\r\n").count(BIG)
    expect(values == 1, "half a value was stored, or the whole one is gone")


def slow_client(port, index):
    client = connect(port, receives=4096)
    try:
        if index % 2:
            client.sendall(b"set slow%d 0 0 1000000\r\n%s" % (index, BIG[:30_000]))
        else:
            client.sendall(b"get big big big big\r\n")
    except OSError:
        pass  # cut off already, for what it holds
    return client


def connect(port, receives=None):
    client = socket.socket()
    if receives:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    client.settimeout(PATIENCE)
    client.connect(("127.0.0.1", port))
    return client


def ask(client, request, end):
    client.sendall(request)
    answer = b""
    while not answer.endswith(end):
        some = client.recv(1 << 20)
        expect(some, f"closed after {answer[-100:]!r}")
        answer += some
    return answer


def statistic(client, name):
    return int(re.search(rf"STAT {name} (\d+)", ask(client, b"stats\r\n", b"END\r\n").decode())[1])


def resident(server):
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10


main()
