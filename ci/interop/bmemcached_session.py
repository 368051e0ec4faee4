"""A session by python-binary-memcached, which speaks the binary protocol; with a login if there are two more arguments."""

import sys

import bmemcached
from expect import BIG, HOW, PORT, TLS, check

login = sys.argv[2:4] or [None, None]
client = bmemcached.Client([f"127.0.0.1:{PORT}"], *login, tls_context=TLS)
check(client.flush_all(), True)
check(client.set("key", "value"), True)
check(client.get("key"), "value")
check(client.get("absent"), None)
check(client.add("key", "other"), False)
check(client.replace("absent", "other"), False)
value, unique = client.gets("key")
check(client.cas("key", "swapped", unique), True)
check(client.cas("key", "again", unique), False)
check(client.incr("number", 5, default=10), 10)
check(client.incr("number", 5), 15)
check(client.decr("number", 20), 0)
check(client.set_multi({f"k{n}": f"v{n}" for n in range(500)}), [])
check(client.get_multi([f"k{n}" for n in range(600)]), {f"k{n}": f"v{n}" for n in range(500)})
check(client.delete("key"), True)
check(client.get("key"), None)
check(client.set("big", BIG), True)
check(client.get("big"), BIG)
check(client.stats()[f"127.0.0.1:{PORT}"]["version"], "1.6.45" if sys.version_info < (3,) else b"1.6.45")
client.disconnect_all()
print(f"python-binary-memcached{', with a login' if login[0] else ''}{HOW}: all as expected")
