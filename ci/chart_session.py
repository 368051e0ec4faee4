"""Runs the container of a chart's manifests, as the kubelet would: chart_session.py MANIFESTS IMAGE. Checks that manifests contain the
alert rules and the dashboard, and that the book shows what the chart makes: chart_session.py EVERYTHING.yaml DEFAULT.yaml."""

import json
import os
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from container import HOST_ID, Image, ask, expect, prepare, wait_until

ROOT = Path(__file__).resolve().parent.parent
PASSWORD = "ann secret"


def main():
    manifests, other = sys.argv[1:]
    if other.endswith(".yaml"):
        return has_rules_and_dashboard(kinds(manifests)), is_in_the_book(other)
    prepare()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        pod = kinds(manifests)["StatefulSet"]["spec"]["template"]["spec"]
        (Path(folder) / "image").mkdir()
        volumes = make_volumes(Path(folder), pod["containers"][0])
        serves_and_stops(Image(other, Path(folder) / "image"), pod, volumes, Path(folder))


def kinds(manifests):
    return {document["kind"]: document for document in yaml.safe_load_all(Path(manifests).read_text())}


def make_volumes(folder, container):
    """What the pod mounts. As the kubelet does, secrets consist of links, so that all files change at once; only root and the group of
    the pod can read them."""
    mounts = []
    for mount in container.get("volumeMounts", ()):
        volume = folder / mount["name"]
        version = volume / "..2026"
        version.mkdir(parents=True)
        if mount["name"] == "data":
            version.rmdir()
            os.chown(volume, HOST_ID, HOST_ID)
        elif mount["name"] == "users":
            (version / "users").write_text(PASSWORD.replace(" ", ":") + "\n")
        else:
            certify = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
            names = ["-subj", "/CN=cache", "-addext", "subjectAltName=DNS:cache"]
            subprocess.run([*certify, *names, "-keyout", version / "tls.key", "-out", version / "tls.crt"], check=True, stderr=subprocess.DEVNULL)
        for file in version.iterdir() if version.exists() else ():
            os.chown(file, 0, HOST_ID)
            file.chmod(0o440)
            (volume / file.name).symlink_to(f"..data/{file.name}")
        (volume / "..data").symlink_to(version.name)
        mounts.append((volume, mount["mountPath"], "ro" if mount.get("readOnly") else "rw"))
    return mounts


def connect(folder):
    """A client that is encrypted and has logged in, if the volumes say so."""
    client = socket.create_connection(("127.0.0.1", 11211))
    if (folder / "tls").exists():
        context = ssl.create_default_context(cafile=folder / "tls/tls.crt")
        client = context.wrap_socket(client, server_hostname="cache")
    if (folder / "users").exists():
        talk(client, f"set user 0 0 {len(PASSWORD)}\r\n{PASSWORD}\r\n", "STORED\r\n")
    return client


def talk(client, request, reply):
    client.sendall(request.encode())
    got = b""
    while len(got) < len(reply) and (piece := client.recv(1000)):
        got += piece
    expect(got.decode() == reply, f"the reply to {request!r} is {got!r}")


def probe(container, name):
    """Whether a probe succeeds."""
    request = container[name]["httpGet"]
    port = next(port["containerPort"] for port in container["ports"] if port["name"] == request["port"])
    reply = ask(request["path"], port)
    return reply is not None and reply[0] < 400


def serves_and_stops(image, pod, volumes, folder):
    container = pod["containers"][0]
    megabytes = int(re.fullmatch(r"(\d+)([GM])i", container["resources"]["limits"]["memory"])[1])
    megabytes *= 1024 if container["resources"]["limits"]["memory"].endswith("Gi") else 1
    expect(pod["securityContext"]["runAsUser"] == int(image.config["User"].split(":")[0]), "the user is not that of the image")
    expect({port["containerPort"] for port in container["ports"]} == {11211, 9150}, "the ports are not those of the image")
    start = lambda: image.run(container["args"], volumes, megabytes)
    with start() as running:
        wait_until("start", lambda: probe(container, "startupProbe"))
        expect(probe(container, "livenessProbe") and probe(container, "readinessProbe"), "it is not alive and ready")
        client = connect(folder)
        talk(client, "set a 0 0 1\r\nx\r\n", "STORED\r\n")
        begin = time.monotonic()
        os.kill(running.pid, 15)
        # An open connection is served during the drain, but the pod is no longer ready.
        wait_until("drain", lambda: not probe(container, "readinessProbe"))
        expect(probe(container, "livenessProbe"), "it is killed during the drain")
        talk(client, "mg a v\r\n", "VA 1\r\nx\r\n")
        client.close()
        expect(running.end() == 0, "the end was not clean")
        rest = pod["terminationGracePeriodSeconds"] - container["lifecycle"]["preStop"]["sleep"]["seconds"]
        expect(time.monotonic() - begin < rest, "it would be killed")
        expect("-m auto: " in running.log() and '"level"' in running.log(), "the log is not in JSON, or lacks the memory limit")
    if (folder / "data").exists():
        with start():
            wait_until("start", lambda: probe(container, "startupProbe"))
            talk(connect(folder), "mg a v\r\n", "VA 1\r\nx\r\n")
    print(f"chart: a container with {megabytes} MiB and {len(volumes)} volumes serves, drains and stops as described")


def has_rules_and_dashboard(manifests):
    rules = yaml.safe_load((ROOT / "deploy/prometheus/relativistd.rules.yml").read_text())
    expect(manifests["PrometheusRule"]["spec"] == rules, "the alert rules differ")
    dashboard = (ROOT / "deploy/grafana/relativistd.json").read_text()
    expect(manifests["ConfigMap"]["data"]["relativistd.json"] == dashboard and json.loads(dashboard), "the dashboard differs")
    monitor, service = manifests["ServiceMonitor"]["spec"], manifests["Service"]
    labels = service["metadata"]["labels"]
    expect(labels[monitor["jobLabel"]] == "relativistd", "the job has another name than in the alert rules")
    expect(monitor["selector"]["matchLabels"].items() <= labels.items(), "the monitor selects another service")
    expect(monitor["endpoints"][0]["port"] in [port["name"] for port in service["spec"]["ports"]], "the service has no such port")


def is_in_the_book(rendered):
    page = (ROOT / "docs/src/kubernetes.md").read_text()
    text = Path(rendered).read_text()
    shown = re.findall(r"^```yaml\n# rendered\n(.*?)^```", page, re.M | re.S)
    expect(shown and all(block in text for block in shown), "kubernetes.md shows other manifests than helm makes (the blocks after `# rendered`)")


main()
