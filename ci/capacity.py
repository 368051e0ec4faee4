#!/usr/bin/python3
"""Counts the items with 10-byte keys and 100-byte values that `-m 64` holds before the first
eviction, in relativistd and in memcached. Fails below 1.46 times memcached's number, and above 20
bytes of overhead per item. The overhead of an item is its share of `-m`, less its key and value."""

import os
import pwd
import socket
import subprocess
import tempfile
from pathlib import Path

from support import Server, build_server, debian, expect, fail, wait_until

MEGABYTES = 64
BATCH = 500
KEY, VALUE = 10, 100


def main():
    debian("memcached", "memcached")
    subprocess.run(["memcached", "-V"], check=True)
    with Server(build_server(), "-m", MEGABYTES, "-t", "2") as server, tempfile.TemporaryDirectory() as folder:
        items, stats = fill(socket.create_connection(("127.0.0.1", server.port)))
        reference = items_of_memcached(Path(folder) / "memcached")
    overhead = (MEGABYTES << 20) / items - KEY - VALUE
    print(f"relativistd holds {items} items, memcached {reference}: {items / reference:.3f} times as many")
    print(f"{overhead:.1f} bytes of -m an item beside key and value; items {stats['bytes']}, table {stats['hash_bytes']}")
    expect(items >= 1.46 * reference, "fewer than 1.46 times as many")
    expect(overhead <= 20, "more than 20 bytes of overhead")


def items_of_memcached(path):
    user = pwd.getpwuid(os.geteuid()).pw_name
    memcached = subprocess.Popen(["memcached", "-u", user, "-m", str(MEGABYTES), "-s", path])
    try:
        client = socket.socket(socket.AF_UNIX)
        wait_until("socket of memcached", lambda: client.connect_ex(str(path)) == 0)
        return fill(client)[0]
    finally:
        memcached.terminate()
        memcached.wait()


def fill(client):
    """Stores until something is evicted. Returns the number of items that were there before, and
    the statistics."""
    replies = client.makefile("rb")
    for start in range(0, 10_000_000, BATCH):
        store = b"set k%09d 0 0 %d noreply\r\n%s\r\n"
        client.sendall(b"".join(store % (number, VALUE, b"v" * VALUE) for number in range(start, start + BATCH)))
        stats = statistics(client, replies)
        if (evictions := int(stats["evictions"])) > 0:
            return start + BATCH - evictions, stats
    fail("nothing was ever evicted")


def statistics(client, replies):
    client.sendall(b"stats\r\n")
    stats = {}
    while (line := replies.readline().split()) != [b"END"]:
        stats[line[1].decode()] = line[-1].decode()
    return stats


main()
