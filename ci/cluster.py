#!/usr/bin/python3
"""Three servers, and clients and proxies (twemproxy, memcached's) that distribute keys over them by
ketama hashing. One server is killed and restarted under load.

No client may ever see a wrong value, and only the keys of the killed server may fail or be missing.
That holds where keys stay with their server while it is away: clients and proxy are configured not
to eject servers (see docs/src/scale-out.md). Unpacks a memcached with its proxy from Debian sid."""

import logging
import random
import re
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import support
from support import PATIENCE, ROOT, build_bench, build_server, debian, fail, free_port, wait_for_port, wait_until

support.run_in(support.install_clients())
import elasticache_auto_discovery
import pylibmc
from meta_memcache import CacheClient, Key, ServerAddress, connection_pool_factory_builder
from pymemcache.client.base import Client
from pymemcache.client.hash import HashClient
from uhashring import HashRing

SERVERS = 3
VICTIM = 1
KEYS = 150
OPERATIONS = 2_000
# meta-memcache logs each failure.
logging.disable()


debian("nutcracker", "nutcracker")
SERVER, BENCH, MEMCACHED = build_server(), build_bench(), support.memcached_1_6_45()


class Server:
    def __init__(self, *options):
        self.port = free_port()
        self.options = options
        self.start()

    def start(self):
        self.process = subprocess.Popen([SERVER, "-p", str(self.port), "-t", "1", *self.options])
        wait_for_port(self.port)

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait()

    def holds(self, key):
        client = Client(("127.0.0.1", self.port), timeout=PATIENCE)
        try:
            return client.get(key) is not None
        finally:
            client.close()


class Proxy:
    def __init__(self, port, command):
        self.port = port
        self.process = subprocess.Popen(command)
        wait_for_port(port)

    def end(self):
        self.process.terminate()
        self.process.wait()


def twemproxy(folder, ports):
    """Debian's nutcracker."""
    servers = "".join(f"    - 127.0.0.1:{port}:1\n" for port in ports)
    port = free_port()
    config = Path(folder, "nutcracker.yml")
    config.write_text(
        f"pool:\n  listen: 127.0.0.1:{port}\n  hash: md5\n  distribution: ketama\n  timeout: {PATIENCE * 1000}\n"
        f"  auto_eject_hosts: false\n  servers:\n{servers}"
    )
    return Proxy(port, ["nutcracker", "-c", config, "-o", Path(folder, "nutcracker.log"), "-s", str(free_port())])


def memcached_proxy(folder, ports):
    """memcached's own proxy, with the configuration that operators get."""
    text = (ROOT / "deploy/memcached-proxy/pool.lua").read_text()
    for number, port in enumerate(ports, 1):
        text = text.replace(f"10.0.0.{number}:11211", f"127.0.0.1:{port}")
    config = Path(folder, "pool.lua")
    config.write_text(text)
    port = free_port()
    options = ["-l", "127.0.0.1", "-p", str(port), "-t", "1", "-o", f"proxy_config=routelib,proxy_arg={config}"]
    return Proxy(port, [*MEMCACHED, *options])


def by_proxy(proxy):
    return Client(("127.0.0.1", proxy.port), timeout=PATIENCE, default_noreply=False)


class MetaClient:
    """meta-memcache, with the methods that a `Load` uses."""

    def __init__(self, proxy):
        servers = [ServerAddress(host="127.0.0.1", port=proxy.port)]
        pools = connection_pool_factory_builder(recv_timeout=PATIENCE, connection_timeout=PATIENCE, mark_down_period_s=0)
        self.client = CacheClient.cache_client_from_servers(servers=servers, connection_pool_factory_fn=pools)

    def get(self, key):
        return self.client.get(key=Key(key))

    def set(self, key, value):
        return self.client.set(key=Key(key), value=value, ttl=0)


def by_pymemcache(ports):
    # pymemcache removes a server from the ring after this number of failed attempts.
    never = 10**9
    return HashClient(
        [f"127.0.0.1:{port}" for port in ports],
        hasher=lambda: HashRing(hash_fn="ketama"),
        retry_attempts=never,
        retry_timeout=0.1,
        timeout=PATIENCE,
        default_noreply=False,
    )


def by_pylibmc(ports):
    behaviors = {"ketama": True, "tcp_nodelay": True, "retry_timeout": 1, "receive_timeout": PATIENCE * 10**6}
    return pylibmc.Client([f"127.0.0.1:{port}" for port in ports], behaviors=behaviors)


class Load:
    """What one client stores and expects. No other client stores under its keys."""

    def __init__(self, name, client, servers):
        self.name, self.client = name, client
        self.random = random.Random(name)
        prefix = re.sub("[^a-z]+", "-", name)
        self.keys = [f"{prefix}-{number}" for number in range(KEYS)]
        self.possible = {}
        self.version = 0
        self.failures = self.misses = self.operations = 0
        self.is_victim_away = False
        for key in self.keys:
            self.store(key, {None})
        self.endangered = {key for key in self.keys if servers[VICTIM].holds(key)}
        held = sum(server.holds(key) for server in servers for key in self.keys)
        if held != KEYS or not 0 < len(self.endangered) < KEYS:
            fail(f"{name}: keys are not spread over the servers, one for each")

    def attempt(self, key, what):
        """Returns the result of `what`, or None if it fails. It may fail only for keys of the
        victim, while that is down or has just restarted."""
        try:
            return what()
        except Exception as error:
            if key not in self.endangered:
                fail(f"{self.name}: {key} is not on the server that was killed, but fails: {error!r}")
            self.failures += 1
            return None

    def store(self, key, before=None):
        self.version += 1
        value = f"{key}: {self.version}"
        if before is not None:
            self.possible[key], self.endangered = before, set()
        if self.attempt(key, lambda: self.client.set(key, value)):
            self.possible[key] = {value}
            return True
        if key not in self.endangered:
            fail(f"{self.name}: {key} is not on the server that was killed, but is not stored")
        self.possible[key] = self.possible[key] | {value}
        return False

    def fetch(self, key):
        value = self.attempt(key, lambda: self.client.get(key))
        value = value.decode() if isinstance(value, bytes) else value
        if value is None and key in self.endangered:
            self.misses += 1
        elif value not in self.possible[key]:
            fail(f"{self.name}: {key} has the wrong value {value!r}, not one of {self.possible[key]!r}")
        return value

    def run(self):
        for _ in range(OPERATIONS):
            key = self.random.choice(self.keys)
            if self.random.random() < 0.3:
                self.store(key)
            else:
                self.fetch(key)
            self.operations += 1

    def recover(self):
        """Stores the keys of the victim until all of them are found again."""
        end = time.monotonic() + PATIENCE
        left = set(self.endangered)
        while left:
            if time.monotonic() > end:
                fail(f"{self.name}: {len(left)} keys of the server that is back still fail")
            left = {key for key in left if not (self.store(key) and self.fetch(key))}
            # Clients wait before they try a server again.
            time.sleep(0.01)
        if self.endangered and not self.failures:
            fail(f"{self.name}: no operation failed while the server was away")
        self.endangered = set()


def all_at_once(jobs, meanwhile=lambda: None):
    """Runs the jobs in a thread each. The first failure ends the session."""
    failures = []

    def guarded(job):
        try:
            job()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    meanwhile()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


class Bench:
    """relativist-bench, which checks each reply that it gets through a proxy."""

    def __init__(self, proxy, protocol, read):
        command = [BENCH, "load", "--server", f"127.0.0.1:{proxy.port}", "--protocol", protocol, "--sets", "30", "--clients", "4"]
        command += ["--items", "1000", "--rounds", "1000", "--seconds", "2"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        # It stores all items before, and no server may be missing then.
        wait_until(f"{read} of relativist-bench", lambda: by_proxy(proxy).stats("proxy")[f"cmd_{read}".encode()] > 0)

    def end(self):
        """Ends the load after its current round. It would have ended before at a wrong reply."""
        self.process.send_signal(signal.SIGINT)
        output, _ = self.process.communicate(timeout=PATIENCE)
        if self.process.returncode != 128 + signal.SIGINT:
            fail(output)


def session(folder):
    servers = [Server() for _ in range(SERVERS)]
    proxies, benches = [], []
    try:
        ports = [server.port for server in servers]
        for start in (twemproxy, memcached_proxy):
            proxies.append(start(folder, ports))
        twem, own = proxies
        for protocol, read in (("classic", "get"), ("meta", "mg")):
            benches.append(Bench(own, protocol, read))
        clients = {
            "twemproxy": by_proxy(twem),
            "memcached's proxy": by_proxy(own),
            "memcached's proxy, meta": MetaClient(own),
            "pymemcache": by_pymemcache(ports),
            "pylibmc": by_pylibmc(ports),
        }
        loads = [Load(name, client, servers) for name, client in clients.items()]

        def kill_under_load():
            # Wait until one load has done a quarter of its operations, or all have ended. The
            # others have begun by then.
            while all(load.operations < OPERATIONS // 4 for load in loads) and threading.active_count() > 1:
                time.sleep(0.001)
            servers[VICTIM].end(signal.SIGKILL)

        all_at_once([load.run for load in loads], kill_under_load)
        all_at_once([load.run for load in loads])
        all_at_once([load.run for load in loads], servers[VICTIM].start)
        all_at_once([load.recover for load in loads])
        failures = {load.name: (load.failures, load.misses) for load in loads}
        all_at_once([load.run for load in loads])
        for load in loads:
            if failures[load.name] != (load.failures, load.misses):
                fail(f"{load.name}: not everything works after the server came back")
            print(f"cluster: {load.name}: {load.operations} operations, {load.failures} failed, {load.misses} missed")
        for bench in benches:
            bench.end()
    finally:
        for bench in benches:
            bench.process.kill()
            bench.process.wait()
        for proxy in proxies:
            proxy.end()
        for server in servers:
            server.end(signal.SIGTERM)


def discovers():
    """A client of Amazon ElastiCache finds the nodes that a server lists."""
    nodes = [["cache-1", "10.0.0.1", "11211"], ["cache-2", "", "11212"]]
    server = Server(*(f"--cluster-node={'|'.join(node)}" for node in nodes))
    try:
        found = elasticache_auto_discovery.discover(f"127.0.0.1:{server.port}")
        found = [[word.decode() for word in node] for node in found]
        if found != nodes:
            fail(f"elasticache_auto_discovery has found {found}")
    finally:
        server.end(signal.SIGTERM)


discovers()
with tempfile.TemporaryDirectory() as folder:
    session(folder)
