"""Stores, overwrites, reads back and deletes many items, and watches the table grow and shrink by `stats`."""

import sys
import time

from pymemcache.client.base import Client

port, items = int(sys.argv[1]), int(sys.argv[2])
BATCH = 2000
client = Client(("127.0.0.1", port), timeout=60)
watcher = Client(("127.0.0.1", port), timeout=60)


def table():
    stats = watcher.stats()
    return int(stats[b"hash_power_level"]), int(stats[b"curr_items"])


def batches():
    for start in range(0, items, BATCH):
        yield range(start, min(start + BATCH, items))


def phase(name, work):
    """Runs `work` on each batch; returns the sizes of the table that were seen, as powers of two."""
    started, levels = time.monotonic(), []
    for number, batch in enumerate(batches()):
        work(batch)
        if number % 10 == 0:
            levels.append(table()[0])
    levels.append(table()[0])
    seconds = time.monotonic() - started
    print(f"{name}: {items / seconds:,.0f} items/s, 2^{levels[0]} to 2^{levels[-1]} buckets, {len(set(levels))} sizes seen")
    return levels


def wanted(number, version):
    return f"{number}:{version}".encode()


def version_of(number):
    return 2 if number % 10 == 0 else 1


def store(batch):
    failed = client.set_many({f"key{n}": wanted(n, 1) for n in batch}, noreply=False)
    assert not failed, failed


def overwrite(batch):
    failed = client.set_many({f"key{n}": wanted(n, 2) for n in batch if version_of(n) == 2}, noreply=False)
    assert not failed, failed


def verify(batch):
    found = client.get_many([f"key{n}" for n in batch])
    for n in batch:
        value = found.get(f"key{n}")
        assert value == wanted(n, version_of(n)), f"key{n}: found {value}"


def delete(batch):
    # delete_many sends a request per key and waits for each; without replies the batch goes out at once.
    client.delete_many([f"key{n}" for n in batch], noreply=True)
    # The server has executed the deletes by now, because the same connection sent them. The next
    # batch must still be there.
    assert client.get_many([f"key{n}" for n in batch]) == {}
    following = range(batch.stop, min(batch.stop + 100, items))
    verify(following)


def wait_for(what, condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise SystemExit(f"waited too long for {what}: now {table()}")


smallest, at_start = table()
assert at_start == 0, f"the server holds {at_start} items already"

grown = phase("store", store)
assert grown == sorted(grown), f"the table shrank while it was filled: {grown}"
wait_for("the table to be large enough", lambda: 2 ** table()[0] * 4 >= items)
# The table may skip sizes: the worker resizes it to what it needs at that time.
assert len(set(grown)) >= 3, f"few sizes seen while it grew: {grown}"
phase("overwrite every tenth", overwrite)
phase("read back", verify)
assert table()[1] == items, table()

shrunk = phase("delete", delete)
wait_for("the table to shrink to its smallest size", lambda: table() == (smallest, 0))
assert len(set(shrunk)) >= 3, f"few sizes seen while it shrank: {shrunk}"
stats = client.stats("table")
print(", ".join(f"{key.decode()} {value}" for key, value in stats.items()))
print(f"{items:,} items stored, read back and deleted: none lost, none stale")
