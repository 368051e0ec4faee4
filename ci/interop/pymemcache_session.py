"""A session with every command, by the client library pymemcache."""

from expect import BIG, HOW, PORT, TLS, check
from pymemcache.client.base import Client, PooledClient
from pymemcache.exceptions import MemcacheClientError, MemcacheServerError

client = Client(("127.0.0.1", PORT), default_noreply=False, timeout=10, tls_context=TLS)
check(client.flush_all(), True)
check(client.version(), b"1.6.45")

check(client.set("key", "value"), True)
check(client.get("key"), b"value")
check(client.get("absent"), None)
check(client.add("key", "other"), False)
check(client.add("new", "1"), True)
check(client.replace("absent", "1"), False)
check(client.replace("new", "10"), True)
check(client.append("key", "+"), True)
check(client.prepend("key", "-"), True)
check(client.get_many(["key", "new", "absent"]), {"key": b"-value+", "new": b"10"})

value, unique = client.gets("key")
check(client.cas("key", "swapped", unique), True)
check(client.cas("key", "again", unique), False)
check(client.cas("absent", "again", unique), None)
check(client.gets("absent"), (None, None))

check(client.incr("new", 5), 15)
check(client.decr("new", 20), 0)
check(client.incr("absent", 1), None)
try:
    client.incr("key", 1)
    raise SystemExit("incr of a text succeeded")
except MemcacheClientError:
    pass

check(client.touch("key", 100), True)
check(client.touch("absent", 100), False)
check(client.set("gone", "x", expire=-1), True)
check(client.get("gone"), None)
check(client.delete("key"), True)
check(client.delete("key"), False)

check(client.set("big", BIG), True)
check(client.get("big"), BIG)
try:
    client.set("big", b"x" * (2 << 20))
    raise SystemExit("a value over the limit was stored")
except MemcacheServerError:
    pass
check(client.get("big"), None)

check(client.set_many({f"k{n}": f"v{n}" for n in range(5000)}), [])
check(client.get_many([f"k{n}" for n in range(5000)]), {f"k{n}": f"v{n}".encode() for n in range(5000)})
check(client.delete_many([f"k{n}" for n in range(5000)]), True)
check(client.get_many([f"k{n}" for n in range(5000)]), {})
check(client.stats()[b"cmd_flush"], 1)

pool = PooledClient(("127.0.0.1", PORT), max_pool_size=4, tls_context=TLS)
pool.set("pooled", "yes", noreply=False)
check(pool.get("pooled"), b"yes")
print(f"pymemcache{HOW}: all as expected")
