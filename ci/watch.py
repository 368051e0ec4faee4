#!/usr/bin/python3
"""A real Prometheus scrapes three servers: one under load, one with TLS, and one with tenants. It
must answer each query of the dashboard, and evaluate each alert. The alert rules have tests of
their own, and ci/grafana.py checks Grafana's files."""

import contextlib
import itertools
import json
import math
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from support import PATIENCE, ROOT, build_bench, build_server, debian, fail, free_port, wait_until

DASHBOARD = json.loads((ROOT / "deploy/grafana/relativistd.json").read_text())
RULES = ROOT / "deploy/prometheus/relativistd.rules.yml"
# What Grafana replaces in queries. Rates need at least two scrapes in the interval.
VARIABLES = {"$job": ".*", "$instance": ".*", "$__rate_interval": "30s"}
# The scrapes of each server that the queries need in that time.
SCRAPES = 8


def main():
    check_files()
    program, bench = build_server(), build_bench()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as processes:
        folder = Path(folder)
        # So small that it evicts items.
        busy, port, admin = serve(processes, program, "-m", "8", "-t", "2", "--snapshot", str(folder / "items"))
        encrypted = serve(processes, program, "-m", "64", "-t", "1", "-Z", "-o", certificate(folder))[2]
        load = ["--items", "200000", "--rate", "2000", "--sets", "20", "--rounds", "1", "--seconds", "600"]
        start(processes, [bench, "load", "--server", f"127.0.0.1:{port}", *load], stdout=subprocess.DEVNULL)
        _, shared_port, shared = serve(processes, program, "-m", "16", "-t", "1", "-Y", users(folder))
        threading.Thread(target=load_tenant, args=(shared_port,), daemon=True).start()
        prometheus = Prometheus(processes, folder, [admin, encrypted, shared])
        wait_until("evictions", lambda: prometheus.number("sum(relativistd_evictions_total)") > 0)
        busy.send_signal(signal.SIGUSR2)
        wait_until("snapshot", lambda: prometheus.number("sum(relativistd_snapshots_total)") > 0)
        wait_until("estimate", lambda: prometheus.number("count(relativistd_sizing_hit_ratio)") > 0)
        wait_until("estimate of a tenant", lambda: prometheus.number("count(relativistd_tenant_sizing_hit_ratio)") > 0)
        scrapes = 'min(sum_over_time(up{job="relativistd"}[30s]))'
        wait_until("scrapes", lambda: prometheus.number(scrapes) >= SCRAPES)
        problems = metrics_problems(admin) + metrics_problems(shared) + dashboard_problems(prometheus) + alert_problems(prometheus)
        for problem in problems:
            print(f"watch: {problem}", file=sys.stderr)
        if problems:
            raise SystemExit(1)
        busy.kill()
        wait_until("alert", lambda: prometheus.number('count(ALERTS{alertname="RelativistdDown"})') == 1)


def check_files():
    debian("promtool", "--no-install-recommends", "prometheus")
    debian("openssl", "openssl")
    debian("/usr/lib/python3/dist-packages/yaml", "python3-yaml")
    for command in (
        ["promtool", "check", "config", "deploy/prometheus/prometheus.yml"],
        ["promtool", "test", "rules", "deploy/prometheus/relativistd.rules.test.yml"],
        ["/usr/bin/python3", "ci/grafana.py"],
    ):
        subprocess.run(command, cwd=ROOT, check=True)


def start(processes, command, **options):
    """Starts a program that ends when this one does."""
    process = subprocess.Popen([str(word) for word in command], **options)
    processes.callback(process.wait)
    processes.callback(process.kill)
    return process


def serve(processes, program, *options):
    """Starts a server. Returns it, its port, and the port of --admin."""
    port, admin = free_port(), free_port()
    server = start(processes, [program, "-l", "127.0.0.1", "-p", port, "--admin", admin, *options])
    wait_until("server", lambda: fetch(admin, "/readyz") == "ok\n")
    return server, port, admin


def certificate(folder):
    """A certificate that expires soon, as options of a server."""
    key, chain = folder / "key", folder / "certificate"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "10", "-subj", "/CN=x"]
    subprocess.run([*command, "-keyout", key, "-out", chain], check=True, stderr=subprocess.DEVNULL)
    return f"ssl_chain_cert={chain},ssl_key={key}"


def users(folder):
    """A file of users with one tenant."""
    file = folder / "users"
    file.write_text("plain:secret\n[tenant team memory=8m]\nteam:secret\n")
    return file


def load_tenant(port):
    """Stores more and more items as a user of the tenant, and asks for items, until the server
    ends."""
    value = "v" * 1000
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"set login 0 0 11\r\nteam secret\r\n")
        replies = client.makefile("rb")
        for n in itertools.count():
            requests = f"set {n} 0 0 1000 noreply\r\n{value}\r\nget {n // 2} none{n}\r\n"
            client.sendall(requests.encode())
            # At most some thousand commands a second, so that all are simulated.
            if n % 10 == 9:
                client.sendall(b"mn\r\n")
                while (line := replies.readline()) not in (b"MN\r\n", b""):
                    pass
                if not line:
                    return
                time.sleep(0.004)


def fetch(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
        return reply.read().decode()


class Prometheus:
    def __init__(self, processes, folder, targets):
        self.port = free_port()
        config = folder / "prometheus.yml"
        # Its parser of YAML accepts JSON.
        job = {"job_name": "relativistd", "static_configs": [{"targets": [f"127.0.0.1:{target}" for target in targets]}]}
        intervals = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config.write_text(json.dumps({"global": intervals, "rule_files": [str(RULES)], "scrape_configs": [job]}))
        storage, listen = f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{self.port}"
        start(processes, ["prometheus", f"--config.file={config}", storage, listen, "--log.level=warn"])
        wait_until("reply of Prometheus", lambda: fetch(self.port, "/-/ready"))

    def ask(self, path, **parameters):
        try:
            reply = fetch(self.port, f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
        except urllib.error.HTTPError as error:
            fail(f"{parameters}: {error.read().decode()}")
        return json.loads(reply)["data"]

    def values(self, query):
        return [float(sample["value"][1]) for sample in self.ask("query", query=query)["result"]]

    def number(self, query):
        """The one value of a query, or 0 if there is none yet."""
        return next(iter(self.values(query)), 0)


def metrics_problems(admin):
    """What promtool finds in the text format."""
    check = subprocess.run(["promtool", "check", "metrics"], input=fetch(admin, "/metrics"), capture_output=True, text=True)
    return [] if check.returncode == 0 else [check.stdout + check.stderr]


def dashboard_problems(prometheus):
    problems, panels = [], DASHBOARD["panels"]
    if len({panel["id"] for panel in panels}) < len(panels):
        problems.append("two panels of the dashboard have the same id")
    queries = [(panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", [])]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"]).groups()
            queries.append((variable["name"], f"count by ({label}) ({metric})"))
    end = time.monotonic() + PATIENCE
    for title, query in queries:
        # An estimate can be missing for some scrapes: the server leaves it out while it is
        # inaccurate.
        while not (numbers := has_numbers(prometheus, query)) and time.monotonic() < end:
            time.sleep(0.5)
        if not numbers:
            problems.append(f'the panel "{title}" has no number: {query}')
    for annotation in DASHBOARD["annotations"]["list"]:
        prometheus.values(replaced(annotation["expr"]))
    print(f"watch: {len(queries)} queries of the dashboard")
    return problems


def has_numbers(prometheus, query):
    return any(not math.isnan(value) for value in prometheus.values(replaced(query)))


def replaced(query):
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    return query


def alert_problems(prometheus):
    """Rules that Prometheus cannot evaluate, and names of metrics that do not exist: their alerts
    would never fire."""
    rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    names = set(prometheus.ask("label/__name__/values"))
    problems, written = [], len(re.findall(r"^ +- (?:alert|record):", RULES.read_text(), re.M))
    if len(rules) != written:
        problems.append(f"Prometheus has {len(rules)} rules of {written}")
    for rule in rules:
        prometheus.values(rule["query"])
        if rule["health"] != "ok":
            problems.append(f'{rule["name"]} is {rule["health"]}: {rule.get("lastError")}')
        unknown = set(re.findall(r"\brelativistd[:_][a-z0-9_:]+", rule["query"])) - names
        problems += [f'{rule["name"]}: there is no {name}' for name in sorted(unknown)]
    active = {rule["name"] for rule in rules if rule.get("alerts")}
    if "RelativistdCertificateExpires" not in active:
        problems.append(f"the alert of the certificate is not active, but {sorted(active)}")
    units = prometheus.ask("metadata", metric="relativistd_read_bytes").get("relativistd_read_bytes", [{}])
    if units[0].get("unit") != "bytes":
        problems.append(f"Prometheus has not scraped OpenMetrics: {units}")
    print(f"watch: {len(rules)} rules")
    return problems


main()
