"""Fills two servers with items until the first eviction, and compares how many they hold."""

import socket
import sys

BATCH = 500
KEY, VALUE = 10, 100


class Server:
    def __init__(self, address):
        if address.isdigit():
            self.socket = socket.create_connection(("127.0.0.1", int(address)))
        else:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(address)
        self.lines = self.socket.makefile("rb")

    def stats(self):
        self.socket.sendall(b"stats\r\n")
        stats = {}
        while (line := self.lines.readline().split()) != [b"END"]:
            stats[line[1].decode()] = line[-1].decode()
        return stats

    def store(self, numbers):
        command = b"set k%09d 0 0 %d noreply\r\n%s\r\n"
        self.socket.sendall(b"".join(command % (number, VALUE, b"v" * VALUE) for number in numbers))

    def fill(self):
        """Stores until something is evicted; returns the number of items that were there before."""
        for start in range(0, 10_000_000, BATCH):
            self.store(range(start, start + BATCH))
            stats = self.stats()
            if (evictions := int(stats["evictions"])) > 0:
                return start + BATCH - evictions, stats
        raise SystemExit("nothing was ever evicted")


limit = int(sys.argv[1]) << 20
items, stats = Server(sys.argv[2]).fill()
reference, _ = Server(sys.argv[3]).fill()
overhead = limit / items - KEY - VALUE
print(f"relativistd holds {items} items, memcached {reference}: {items / reference:.3f} times as many")
print(f"{overhead:.1f} bytes of -m an item beside key and value; items {stats['bytes']}, table {stats['hash_bytes']}")
assert items >= 1.46 * reference, "fewer than 1.46 times as many"
assert overhead <= 20, "more than 20 bytes of overhead"
