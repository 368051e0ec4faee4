#!/usr/bin/python3
"""Sends the same random commands to relativistd and to memcached 1.6.45, and compares the replies
byte by byte: ci/differential.py [SEQUENCES [SEED]]. One million sequences take some twenty minutes. A
sequence has steps of some commands on three keys, in the classic, the meta or the binary protocol;
one line in six is malformed. Later steps use the CAS values that earlier ones have returned. Prints
the first difference of each kind, and fails if there are any. Unpacks memcached from Debian sid.

Sequences that count have one command a step, because memcached counts in place only if no reply to
be sent refers to the item. Not compared are: CAS values, but their order of appearance is; whether a
key came in base64, which memcached forgets at times; and what differs on purpose
(docs/src/from-memcached.md)."""

import base64
import random
import re
import socket
import struct
import subprocess
import sys
from collections import Counter

from support import PATIENCE, Server, build_server, expect, free_port, memcached_1_6_45, wait_for_port

MAX_STEPS = 12
# Sequences that are sent together.
BATCH = 50
SHOWN = 3
SEPARATOR = b"MN\r\n"
ODD_WORDS = [b"-1", b"abc", b"0", b"4294967296", b"99999999999999999999", b"noreply", b"1x", b"\x01"]
NUMBERS = [b"0", b"1", b"7", b"10", b"99", b"4294967295", b"18446744073709551615"]
EXPTIMES = [b"0", b"0", b"0", b"1000", b"-1", b"2592000"]


def main():
    sequences = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    options = ["-m", "64", "-t", "1"]
    port = free_port()
    # Its thread for the LRU order refers to items that were fetched, for a while.
    alone = ["-o", "no_lru_maintainer,no_lru_crawler"]
    rival = subprocess.Popen([*memcached_1_6_45(), "-l", "127.0.0.1", "-p", str(port), *options, *alone])
    try:
        wait_for_port(port)
        with Server(build_server(), *options) as server:
            differences = compare(server.port, port, sequences, seed)
    finally:
        rival.kill()
    expect(not differences, f"{sum(differences.values())} of {sequences} sequences differ, in {len(differences)} kinds")
    print(f"differential: {sequences} sequences, no difference")


def compare(ours, theirs, sequences, seed):
    """Sends sequences to both servers. Returns the number of differences of each kind."""
    generator, kinds = random.Random(seed), Counter()
    protocols = [(Text, classic), (Text, meta), (Binary, binary)]
    connections = {protocol: [protocol(port) for port in (ours, theirs)] for protocol in (Text, Binary)}
    for first in range(0, sequences, BATCH):
        protocol, command = generator.choice(protocols)
        batch = []
        for number in range(first, min(first + BATCH, sequences)):
            keys = [b"%d-%d" % (number, key) for key in range(3)]
            batch.append(split(generator, command, keys))
        try:
            replies = [connection.run(batch) for connection in connections[protocol]]
        except OSError:
            # A server has closed the connection: find out after which sequence.
            replies = [connection.run_each(batch) for connection in connections[protocol]]
        for sequence, one, other in zip(batch, *replies, strict=True):
            if one != other:
                step = next(step for step in range(MAX_STEPS) if one[step] != other[step])
                note(kinds, sequence[: step + 1], one[step], other[step])
    return kinds


def split(generator, command, keys):
    """The commands of a sequence, in MAX_STEPS lists, the last of which may be empty."""
    commands = [command(generator, keys) for _ in range(generator.randint(3, MAX_STEPS))]
    counts = any(re.match(rb"incr|decr|ma |\x80[\x05\x06\x15\x16]", one) for one in commands)
    size = 1 if counts else generator.randint(1, 5)
    parts = [commands[first : first + size] for first in range(0, len(commands), size)]
    return parts + [[]] * (MAX_STEPS - len(parts))


def note(kinds, steps, ours, theirs):
    command = re.sub(rb"[0-9]+-[0-9]+|[0-9]{3,}", b"", b" ".join(steps[-1]))[:40]
    kind = (command.split(b" ")[0], ours[:20], theirs[:20])
    kinds[kind] += 1
    if kinds[kind] == 1 and len(kinds) <= 40:
        print(f"differential: after {steps[:-1]}\n  {steps[-1]}\n  relativistd {ours}\n  memcached   {theirs}")


# --- Connections


class Connection:
    def __init__(self, port):
        self.port = port
        self.connect()

    def connect(self):
        self.socket = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
        self.rest = b""

    def run(self, batch):
        """Runs the sequences of a batch, step by step. Returns the normalised replies to each."""
        seen = [[] for _ in batch]
        replies = [[] for _ in batch]
        for step in range(MAX_STEPS):
            parts = [self.encode(sequence[step], seen[number]) for number, sequence in enumerate(batch)]
            self.socket.sendall(b"".join(parts))
            for number in range(len(batch)):
                replies[number].append(self.normalise(self.receive(), seen[number]))
        return replies

    def run_each(self, batch):
        """Runs the sequences again, one by one, without the items that they have left behind. The
        reply to a step that closes the connection says so."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as client:
            client.sendall(b"flush_all\r\n")
            client.recv(10)
        replies = []
        for sequence in batch:
            self.connect()
            seen, some = [], []
            try:
                for step in sequence:
                    self.socket.sendall(self.encode(step, seen))
                    some.append(self.normalise(self.receive(), seen))
            except OSError:
                some += [b"closed " + self.rest] * (MAX_STEPS - len(some))
            replies.append(some)
        self.connect()
        return replies

    def more(self):
        some = self.socket.recv(1 << 16)
        if not some:
            raise ConnectionResetError
        self.rest += some


def cas_of(seen, index):
    """A CAS value that was seen, or another number."""
    return seen[index % len(seen)] if seen else 1 + index


def rank(seen, value):
    if value not in seen:
        seen.append(value)
    return seen.index(value)


def without_base64(reply):
    """A meta reply with the key as it is."""
    words = reply.split(b" ")
    if b"b" in words:
        words.remove(b"b")
        words = [b"k" + base64.b64decode(word[1:]) if word.startswith(b"k") else word for word in words]
    return b" ".join(words)


class Text(Connection):
    def encode(self, commands, seen):
        text = b"".join(commands)
        return re.sub(rb"@([0-9])", lambda found: b"%d" % cas_of(seen, int(found[1])), text) + b"mn\r\n"

    def receive(self):
        while not (self.rest.startswith(SEPARATOR) or b"\n" + SEPARATOR in self.rest):
            self.more()
        end = 0 if self.rest.startswith(SEPARATOR) else self.rest.index(b"\n" + SEPARATOR) + 1
        reply, self.rest = self.rest[:end], self.rest[end + len(SEPARATOR) :]
        return reply

    def normalise(self, reply, seen):
        def of_gets(found):
            return b"%b @%d\r\n" % (found[1], rank(seen, int(found[2])))

        reply = re.sub(rb"(VALUE [^ ]+ [0-9]+ [0-9]+) ([0-9]+)\r\n", of_gets, reply)
        reply = re.sub(rb" c([0-9]+)", lambda found: b" c@%d" % rank(seen, int(found[1])), reply)
        reply = b"\r\n".join(map(without_base64, reply.split(b"\r\n")))
        # Seconds may pass between the two servers.
        return re.sub(rb" ([tl])[0-9]+", rb" \1#", reply)


class Binary(Connection):
    NOOP = struct.pack(">BBHBBHIIQ", 0x80, 0x0A, 0, 0, 0, 0, 0, 0x5E9A, 0)

    def encode(self, commands, seen):
        def with_cas(command):
            index = struct.unpack_from(">Q", command, 16)[0]
            cas = 0 if index == 0 else cas_of(seen, index - 1)
            return command[:16] + struct.pack(">Q", cas) + command[24:]

        return b"".join(map(with_cas, commands)) + self.NOOP

    def receive(self):
        packets = []
        while True:
            while len(self.rest) < 24 or len(self.rest) < 24 + struct.unpack_from(">I", self.rest, 8)[0]:
                self.more()
            length = 24 + struct.unpack_from(">I", self.rest, 8)[0]
            packet, self.rest = self.rest[:length], self.rest[length:]
            if packet[1] == 0x0A and packet[12:16] == self.NOOP[12:16]:
                return packets
            packets.append(packet)

    def normalise(self, packets, seen):
        def of_packet(packet):
            cas = struct.unpack_from(">Q", packet, 16)[0]
            body = packet[24:]
            return packet[:16] + (b"@%d" % rank(seen, cas) if cas else b"-") + body

        return b" ".join(map(of_packet, packets))


# --- Random commands


def value(generator):
    return generator.choice([b"", b"5", b"10", b"99 ", b"abc", b"18446744073709551615", b"x" * 300])


def line(generator, words, block=None):
    """A command line, now and then malformed, and its data block."""
    if generator.random() < 0.16:
        # Without its key a line would have another one, which other sequences may use.
        place = generator.randrange(min(2, len(words)), len(words) + 1)
        odd, change = generator.choice(ODD_WORDS), generator.choice(["drop", "replace", "insert"])
        if block is not None:
            # A number that announces a longer block would swallow what follows.
            odd, change = generator.choice([b"-1", b"abc"]), "replace"
        words = words[:place] + ([] if change == "drop" else [odd]) + words[place + (change != "insert") :]
    text = b" ".join(words) + b"\r\n"
    return text if block is None else text + block + b"\r\n"


def classic(generator, keys):
    key, verb = generator.choice(keys), generator.choice(CLASSIC)
    noreply = [b"noreply"] if generator.random() < 0.15 else []
    if verb in (b"set", b"add", b"replace", b"append", b"prepend", b"cas"):
        block = value(generator)
        words = [verb, key, generator.choice([b"0", b"5", b"4294967295"]), generator.choice(EXPTIMES), b"%d" % len(block)]
        words += [b"@%d" % generator.randrange(3)] if verb == b"cas" else []
        return line(generator, words + noreply, block)
    if verb in (b"get", b"gets"):
        return line(generator, [verb, *generator.sample(keys, generator.randint(1, 3))])
    if verb in (b"gat", b"gats"):
        return line(generator, [verb, generator.choice(EXPTIMES), *generator.sample(keys, generator.randint(1, 2))])
    if verb in (b"incr", b"decr"):
        return line(generator, [verb, key, generator.choice(NUMBERS), *noreply])
    if verb == b"touch":
        return line(generator, [verb, key, generator.choice(EXPTIMES), *noreply])
    return line(generator, [verb, key, *noreply])


CLASSIC = [b"set", b"set", b"add", b"replace", b"append", b"prepend", b"cas", b"get", b"gets", b"gat", b"gats"]
CLASSIC += [b"incr", b"decr", b"touch", b"delete"]
META_FLAGS = {
    b"mg": [b"b", b"c", b"f", b"k", b"l", b"O12", b"q", b"s", b"t", b"v", b"E9", b"N1000", b"R30", b"T1000"],
    b"ms": [b"b", b"c", b"C@0", b"C0", b"E7", b"F3", b"I", b"k", b"O12", b"q", b"s", b"T1000", b"T-1", b"ME", b"MA", b"MP", b"MR", b"MS", b"N1000"],
    b"md": [b"b", b"C@0", b"C0", b"E7", b"I", b"k", b"O12", b"q", b"T1000", b"x"],
    b"ma": [b"b", b"C@0", b"E7", b"N1000", b"J5", b"D3", b"MI", b"MD", b"O12", b"q", b"t", b"T1000", b"c", b"v", b"k"],
}


def meta(generator, keys):
    verb, key = generator.choice([b"mg", b"mg", b"ms", b"ms", b"md", b"ma"]), generator.choice(keys)
    flags = generator.sample(META_FLAGS[verb], generator.randint(0, 4))
    # memcached orders CAS values by size.
    if b"C@0" in flags and b"I" in flags:
        flags.remove(b"I")
    if b"b" in flags:
        key = base64.b64encode(key)
    if verb == b"ms":
        block = value(generator)
        return line(generator, [verb, key, b"%d" % len(block), *flags], block)
    return line(generator, [verb, key, *flags])


def binary(generator, keys):
    opcode = generator.choice(list(BINARY))
    key, cas = generator.choice(keys), generator.choice([0, 0, 0, 1, 2])
    extras, block = b"", b""
    kind = BINARY[opcode]
    exptime = generator.choice([0, 0, 1000])
    if kind == "store":
        extras, block = struct.pack(">II", generator.choice([0, 5]), exptime), value(generator)
    elif kind == "join":
        block = value(generator)
    elif kind == "count":
        extras = struct.pack(">QQI", generator.choice([0, 1, 7, 2**64 - 1]), 10, generator.choice([0, 0xFFFFFFFF]))
    elif kind == "touch":
        extras = struct.pack(">I", exptime)
    if generator.random() < 0.05:
        extras = extras[:-1]
    opaque = generator.randrange(1, 1000)
    body = len(extras) + len(key) + len(block)
    return struct.pack(">BBHBBHIIQ", 0x80, opcode, len(key), len(extras), 0, 0, body, opaque, cas) + extras + key + block


BINARY = {
    **dict.fromkeys((0x00, 0x09, 0x0C, 0x0D, 0x04, 0x14), "get"),
    **dict.fromkeys((0x01, 0x02, 0x03, 0x11, 0x12, 0x13), "store"),
    **dict.fromkeys((0x0E, 0x0F, 0x19, 0x1A), "join"),
    **dict.fromkeys((0x05, 0x06, 0x15, 0x16), "count"),
    **dict.fromkeys((0x1C, 0x1D, 0x1E), "touch"),
}

if __name__ == "__main__":
    main()
