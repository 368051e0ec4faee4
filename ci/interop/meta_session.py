"""A session by meta-memcache, which speaks the meta protocol."""

from expect import BIG, PORT, check
from meta_memcache import CacheClient, Key, ServerAddress, SetMode, connection_pool_factory_builder
from meta_memcache.configuration import LeasePolicy, RecachePolicy, StalePolicy

client = CacheClient.cache_client_from_servers(
    servers=[ServerAddress(host="127.0.0.1", port=PORT)],
    connection_pool_factory_fn=connection_pool_factory_builder(connection_timeout=60, recv_timeout=60),
)
check(client.set(key=Key("key"), value="value", ttl=100), True)
check(client.get(key=Key("key")), "value")
check(client.get(key=Key("absent")), None)
check(client.set(key=Key("key"), value="other", ttl=100, set_mode=SetMode.ADD), False)
check(client.set(key=Key("clé étrange"), value=b"bytes", ttl=100), True)
check(client.get(key=Key("clé étrange")), b"bytes")
check(client.refill(key=Key("key"), value="other", ttl=100), False)

value, unique = client.get_cas(key=Key("key"))
check(value, "value")
check(client.set(key=Key("key"), value="swapped", ttl=100, cas_token=unique), True)
check(client.set(key=Key("key"), value="again", ttl=100, cas_token=unique), False)
check(client.touch(key=Key("key"), ttl=200), True)

check(client.delta_initialize(key=Key("counter"), delta=1, initial_value=10, initial_ttl=100), True)
check(client.delta_and_get(key=Key("counter"), delta=5), 15)
check(client.delta_and_get(key=Key("counter"), delta=-20), 0)

# The first client that asks for a stale value has to renew it.
check(client.invalidate(key=Key("key"), stale_policy=StalePolicy(mark_stale_on_deletion_ttl=30)), True)
check(client.get(key=Key("key"), recache_policy=RecachePolicy(ttl=30)), None)
check(client.get(key=Key("key"), recache_policy=RecachePolicy(ttl=30)), "swapped")

# The first client that misses has to store the value.
lease = LeasePolicy(ttl=30, miss_retries=1)
check(client.get_or_lease(key=Key("leased"), lease_policy=lease), None)
check(client.set(key=Key("leased"), value="now", ttl=100), True)
check(client.get_or_lease(key=Key("leased"), lease_policy=lease), "now")

keys = [Key(f"k{n}") for n in range(500)]
for key in keys:
    client.set(key=key, value=key.key, ttl=100, no_reply=True)
check(client.multi_get(keys=keys), {key: key.key for key in keys})
check(client.set(key=Key("big"), value=BIG, ttl=100), True)
check(client.get(key=Key("big")), BIG)
check(client.delete(key=Key("key")), True)
check(client.get(key=Key("key")), None)
print("meta-memcache: all as expected")
