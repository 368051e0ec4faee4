"""A session by aiomcache."""

import asyncio

import aiomcache
from expect import BIG, HOW, PORT, TLS, check


async def session():
    client = aiomcache.Client("127.0.0.1", PORT, conn_args={"ssl": TLS})
    await client.flush_all()
    check(await client.version(), b"1.6.45")
    check(await client.set(b"key", b"value"), True)
    check(await client.get(b"key"), b"value")
    check(await client.add(b"key", b"other"), False)
    check(await client.append(b"key", b"+"), True)
    check(await client.multi_get(b"key", b"absent"), (b"value+", None))
    value, unique = await client.gets(b"key")
    check(await client.cas(b"key", b"swapped", unique), True)
    check(await client.cas(b"key", b"again", unique), False)
    check(await client.set(b"number", b"10"), True)
    check(await client.incr(b"number", 5), 15)
    check(await client.touch(b"key", 100), True)
    check(await client.set(b"big", BIG), True)
    check(await client.get(b"big"), BIG)
    for n in range(100):
        await client.set(b"k%d" % n, b"v%d" % n)
    found = await asyncio.gather(*(client.get(b"k%d" % n) for n in range(100)))
    check(found, [b"v%d" % n for n in range(100)])
    check(await client.delete(b"key"), True)
    check(await client.delete(b"key"), False)
    check(await client.get(b"key"), None)
    await client.close()


asyncio.run(session())
print(f"aiomcache{HOW}: all as expected")
