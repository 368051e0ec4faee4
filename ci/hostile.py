#!/usr/bin/python3
"""How long do other clients wait for relativistd while twenty clients send the most expensive
commands that there are? ci/hostile.py [ITEMS [SECONDS [KIND]]]. Each kind of command takes some seconds,
while a probe stores and fetches 100 bytes on eight connections. Prints the latencies of the probe,
with memcached beside them for the commands that it has, and fails if the 99th percentile is above
5 ms and three times memcached's. Latencies depend on the machine: let nothing else run."""

import contextlib
import multiprocessing
import socket
import struct
import subprocess
import sys
import threading
import time

from support import PATIENCE, Server, build_server, debian, expect, free_port, wait_for_port

CLIENTS = 20
PERIOD = 0.000_6
NUMBER = b"5" + b" " * 1_000_000
LARGE = 6 << 20
# Name, requests, and whether memcached has them. A number is stored under the key `number`. Requests
# in a tuple are sent once for each connection, which is then reset.
KINDS = [
    ("nothing", b"mn\r\n", False),
    ("incr of 1 MB", b"incr number 1 noreply\r\n" * 500 + b"mn\r\n", True),
    ("md that marks 1 MB", b"md number I q\r\n" * 500 + b"mn\r\n", True),
    ("append to 1 MB", b"append number 0 0 1 noreply\r\nx\r\n" * 200 + b"mn\r\n", True),
    ("get of 1 MB", b"get number\r\n" * 4 + b"mn\r\n", True),
    ("get of 100 keys", (b"get" + b"".join(b" key-%d" % key for key in range(100)) + b"\r\n") * 20 + b"mn\r\n", True),
    ("metadump", b"lru_crawler metadump all\r\nmn\r\n", True),
    ("mgdump", b"lru_crawler mgdump all\r\nmn\r\n", True),
    ("cachedump", b"stats cachedump 1 0\r\nmn\r\n", True),
    ("stats sizes", b"stats sizes\r\nmn\r\n", False),
    ("stats table", b"stats table\r\nmn\r\n", False),
    ("stats memory", b"stats memory\r\nmn\r\n", False),
    ("stats", b"stats\r\n" * 200 + b"mn\r\n", True),
    ("stats hotkeys", b"stats hotkeys\r\n" * 200 + b"mn\r\n", False),
    ("abandoned stats memory", None, False),
    ("metadump, reset", (b"lru_crawler metadump all\r\n",), True),
    ("half a value, reset", (b"set large 0 0 900000\r\n" + b"x" * 450_000,), True),
    ("announced large values", b"set large 0 0 %d\r\n" % LARGE + b"x" * 100, True),
]


def main():
    items = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 4
    debian("memcached", "memcached")
    wanted = [kind for kind in KINDS if len(sys.argv) <= 3 or kind[0] == sys.argv[3]]
    options = ["-m", "1024", "-I", "8m", "-o", "track_sizes"]
    with Server(build_server(), *options) as server:
        ours = measure(server.port, items, seconds, wanted)
    port = free_port()
    rival = subprocess.Popen(["memcached", "-u", "root", "-l", "127.0.0.1", "-p", str(port), *options])
    try:
        wait_for_port(port)
        theirs = measure(port, items, seconds, [kind for kind in wanted if kind[2]])
    finally:
        rival.kill()
    slow = []
    print("| clients send | p50 | p99 | longest (ms) | memcached p50 | p99 | longest |\n|---|--:|--:|--:|--:|--:|--:|")
    for name, latencies in ours.items():
        rival = theirs.get(name)
        cells = [*latencies, *(rival or ("", "", ""))]
        print(f"| {name} | " + " | ".join(f"{cell:.2f}" if cell != "" else "" for cell in cells) + " |")
        if latencies[1] > max(5, 3 * (rival or latencies)[1] if rival else 5):
            slow.append(name)
    expect(not slow, f"others wait for too long while clients send: {', '.join(slow)}")


def measure(port, items, seconds, kinds):
    """The latencies of the probe in milliseconds for each kind: median, 99th percentile, longest."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
        for first in range(0, items, 1000):
            client.sendall(b"".join(b"set key-%d 0 0 20 noreply\r\n%020d\r\n" % (key, key) for key in range(first, min(first + 1000, items))))
        ask(client, b"mn\r\n")
    found = {}
    for name, requests, _ in kinds:
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
            client.sendall(b"set number 0 0 %d noreply\r\n%b\r\n" % (len(NUMBER), NUMBER))
            ask(client, b"mn\r\n")
        end = time.monotonic() + seconds
        attacker = multiprocessing.Process(target=attack, args=(port, requests, end))
        attacker.start()
        found[name] = probe(port, end)
        attacker.join()
    return found


def ask(client, request):
    """Sends a request, and reads until the reply to `mn`."""
    client.sendall(request)
    last = b""
    while not last.endswith(b"MN\r\n"):
        some = client.recv(1 << 20)
        expect(some, "the server has closed a connection")
        last = (last + some)[-4:]


# --- Hostile clients


def attack(port, requests, end):
    threads = [threading.Thread(target=attack_by_one, args=(port, requests, end)) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def attack_by_one(port, requests, end):
    # A server may close hostile clients.
    with contextlib.suppress(OSError, SystemExit):
        while isinstance(requests, tuple) and time.monotonic() < end:
            with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.sendall(requests[0])
            time.sleep(0.02)
        if isinstance(requests, tuple):
            return
        if requests is None or not requests.endswith(b"mn\r\n"):
            while time.monotonic() < end:
                with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
                    client.sendall(requests or b"stats memory\r\n")
                time.sleep(0.01)
            return
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
            while time.monotonic() < end:
                ask(client, requests)
                if requests == b"mn\r\n":
                    time.sleep(0.1)


# --- The probe


def probe(port, end):
    clients = [socket.create_connection(("127.0.0.1", port), PATIENCE) for _ in range(8)]
    value, latencies, due = b"v" * 100, [], time.monotonic()
    for client in clients:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while due < end:
        for number, client in enumerate(clients):
            due += PERIOD
            time.sleep(max(0, due - time.monotonic()))
            start = time.monotonic()
            ask(client, b"set probe-%d 0 0 100 noreply\r\n%b\r\nget probe-%d\r\nmn\r\n" % (number, value, number))
            latencies.append((time.monotonic() - start) * 1000)
        # A probe that is late does not catch up: it would send without a pause.
        due = max(due, time.monotonic())
    latencies.sort()
    return latencies[len(latencies) // 2], latencies[len(latencies) * 99 // 100], latencies[-1]


if __name__ == "__main__":
    main()
