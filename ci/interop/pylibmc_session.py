"""A session by pylibmc, that is libmemcached, in both of its protocols."""

import pylibmc
from expect import BIG, PORT, check

for binary in [False, True]:
    client = pylibmc.Client([f"127.0.0.1:{PORT}"], binary=binary, behaviors={"cas": True, "tcp_nodelay": True})
    check(client.flush_all(), True)
    check(client.set("key", b"value"), True)
    check(client.get("key"), b"value")
    check(client.get("absent"), None)
    check(client.add("key", b"other"), False)
    check(client.replace("key", b"value"), True)
    check(client.append("key", b"+"), True)
    check(client.prepend("key", b"-"), True)
    value, unique = client.gets("key")
    check(value, b"-value+")
    check(client.cas("key", b"swapped", unique), True)
    check(client.cas("key", b"again", unique), False)
    check(client.set("number", 10), True)
    check(client.incr("number", 5), 15)
    check(client.decr("number", 20), 0)
    check(client.set_multi({f"k{n}": f"v{n}".encode() for n in range(1000)}), [])
    check(client.get_multi([f"k{n}" for n in range(1100)]), {f"k{n}": f"v{n}".encode() for n in range(1000)})
    check(client.delete_multi([f"k{n}" for n in range(1000)]), True)
    check(client.touch("key", 100), True)
    check(client.delete("key"), True)
    check(client.delete("key"), False)
    check(client.set("big", BIG), True)
    check(client.get("big"), BIG)
    check("cmd_get" in client.get_stats()[0][1], True)
    client.disconnect_all()
    print(f"pylibmc, {'binary' if binary else 'text'}: all as expected")
