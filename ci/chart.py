#!/usr/bin/python3
"""Checks the Helm chart deploy/helm/relativistd: helm lint, and kubeconform with the schemas of the
oldest and of a recent Kubernetes and of the Prometheus operator; wrong values are refused;
manifests contain the alert rules and the dashboard; the book shows what the chart makes; and a
container runs as the chart describes it, with its probes, volumes and secrets, in the image of
ci/image.py. Builds helm and kubeconform (Go 1.26) if they are missing. No cluster is needed.

With --run MANIFESTS IMAGE it only runs the container, in namespaces that the caller has made
(ci/container.py)."""

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import support
from container import HOST_ID, Image, ask, prepare
from support import ROOT, TARGET, as_root, debian, expect, wait_until

debian("/usr/lib/python3/dist-packages/yaml", "python3-yaml")
import yaml

CHART = ROOT / "deploy/helm/relativistd"
TOOLS = TARGET / "chart"
OLDEST, RECENT = "1.30.0", "1.37.0"
HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
KUBECONFORM = "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0"
OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
VALIDATE = "kubernetes-validate==1.37.0"
PASSWORD = "ann secret"

DEFAULT = []
EVERYTHING = """
persistence.enabled=true persistence.storageClass=fast users.secret=users tls.secret=tls tls.clientCertificates=optional
antiAffinity=required image.pullSecrets[0].name=registry metrics.serviceMonitor.enabled=true metrics.rules.enabled=true
metrics.dashboard.enabled=true networkPolicy.clients[0].podSelector.matchLabels.role=web
networkPolicy.scrapers[0].namespaceSelector.matchLabels.name=monitoring podLabels.team=a podAnnotations.note=b
nodeSelector.disk=ssd tolerations[0].operator=Exists topologySpreadConstraints[0].maxSkew=1
topologySpreadConstraints[0].topologyKey=zone topologySpreadConstraints[0].whenUnsatisfiable=ScheduleAnyway
extraArgs[0]=--disable-flush-all
""".split()
LEAST = """
admin.enabled=false podDisruptionBudget.enabled=false networkPolicy.enabled=false antiAffinity=none preStopSeconds=0 memory=64 resources.limits=null
""".split()
# What helm must say about values.
REFUSED = {
    "replicas=0": "/replicas",
    "replicas=two": "/replicas",
    "memory=lots": "/memory",
    "threads=0": "/threads",
    "antiAffinity=sometimes": "/antiAffinity",
    "tls.clientCertificates=maybe": "/tls/clientCertificates",
    "admin.port=80": "/admin/port",
    "persistance.enabled=true": "persistance",
    "resources.limits=null": "memory: auto needs",
    "metrics.rules.enabled=true admin.enabled=false": "metrics need admin",
    "metrics.serviceMonitor.enabled=true": "needs networkPolicy.scrapers",
}
# The values with which a container runs.
RUN = [
    [],
    "persistence.enabled=true users.secret=users tls.secret=tls resources.limits.memory=256Mi drainSeconds=60".split(),
]


def main():
    if sys.argv[1:2] == ["--run"]:
        return run(Path(sys.argv[2]).read_text(), sys.argv[3])
    debian("openssl", "openssl")
    install_tools()
    has_the_version()
    conforms_to_schemas()
    for values, message in REFUSED.items():
        refuses(values.split(), message)
    everything, default = render(RECENT, EVERYTHING), render(RECENT, DEFAULT)
    has_rules_and_dashboard(kinds(everything))
    keeps_pods_from_admin(kinds(default), kinds(everything))
    is_in_the_book(default)
    subprocess.run([ROOT / "ci/image.py", "--build-only"], check=True)
    for values in RUN:
        manifests = TOOLS / "pod.yaml"
        manifests.write_text(render(RECENT, values))
        image = TARGET / "image/relativistd.tar"
        subprocess.run(as_root("unshare", "--mount", "--net", sys.executable, __file__, "--run", manifests, image), check=True)


# --- Tools


def install_tools():
    packages = " ".join([HELM, KUBECONFORM, OPERATOR, VALIDATE, OLDEST, RECENT])
    installed = TOOLS / "packages"
    if installed.exists() and installed.read_text() == packages:
        return
    debian("go", "golang-go")
    debian("pip", "python3-pip")
    shutil.rmtree(TOOLS, ignore_errors=True)
    (TOOLS / "schemas").mkdir(parents=True)
    os.environ |= {"GOBIN": str(TOOLS / "bin"), "CGO_ENABLED": "0"}
    for package in (HELM, KUBECONFORM):
        # Without optimization, because that takes more time than it saves.
        support.debian_sh("retry", "go", "install", "-gcflags=all=-N -l", package)
    schemas_of_the_operator()
    schemas_of_kubernetes()
    installed.write_text(packages)


def schemas_of_the_operator():
    """The operator's module has definitions. A script of kubeconform makes schemas from them."""
    support.debian_sh("retry", "go", "mod", "download", OPERATOR)
    definitions = folder_of(OPERATOR) / "example/prometheus-operator-crd"
    files = [definitions / f"monitoring.coreos.com_{kind}.yaml" for kind in ("servicemonitors", "prometheusrules")]
    converter = folder_of(KUBECONFORM.replace("/cmd/kubeconform", "")) / "scripts/openapi2jsonschema.py"
    environment = os.environ | {"FILENAME_FORMAT": "{kind}-{fullgroup}-{version}", "DENY_ROOT_ADDITIONAL_PROPERTIES": "1"}
    command = ["/usr/bin/python3", converter, *files]
    subprocess.run(command, cwd=TOOLS / "schemas", env=environment, stdout=subprocess.DEVNULL, check=True)


def folder_of(module):
    found = subprocess.run(["go", "mod", "download", "-json", module], capture_output=True, text=True, check=True).stdout
    return Path(json.loads(found)["Dir"])


def schemas_of_kubernetes():
    """The package kubernetes-validate has them."""
    pip = ["pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest", TOOLS]
    support.debian_sh("retry", *pip, VALIDATE)
    (wheel,) = TOOLS.glob("kubernetes_validate-*.whl")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(TOOLS / "unpacked")
    for version in (OLDEST, RECENT):
        found = TOOLS / f"unpacked/kubernetes_validate/kubernetes-json-schema/v{version}-local-strict"
        shutil.move(found, TOOLS / "schemas" / version)
    # They refer to each other by an address in the network. Make that a path.
    for file in (TOOLS / "schemas").glob("*.0/*.json"):
        text = file.read_text().replace('"$id": "https://kubernetes.io/', '"x-id": "')
        file.write_text(text.replace('"/api/_definitions.json', '"_definitions.json'))
    shutil.rmtree(TOOLS / "unpacked")
    wheel.unlink()


def helm(*arguments):
    return subprocess.run([TOOLS / "bin/helm", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def flags(values):
    return [word for value in values for word in ("--set", value)]


def try_render(version, values):
    return helm("template", "cache", CHART, "--namespace", "caches", "--kube-version", version, *flags(values))


def render(version, values):
    """The manifests for this version of Kubernetes."""
    done = try_render(version, values)
    expect(done.returncode == 0, done.stderr)
    return done.stdout


def conforms(version, manifests):
    """Whether the manifests are valid, and what kubeconform says."""
    schemas = [f"{TOOLS}/schemas/{version}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"]
    schemas += [f"{TOOLS}/schemas/{{{{.ResourceKind}}}}-{{{{.Group}}}}-{{{{.ResourceAPIVersion}}}}.json"]
    command = [TOOLS / "bin/kubeconform", "-strict", "-summary", *(word for schema in schemas for word in ("-schema-location", schema))]
    done = subprocess.run(command, input=manifests, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode == 0, done.stdout


# --- Manifests


def has_the_version():
    found = set(re.findall(r"^(?:version|appVersion): (.*)$", (CHART / "Chart.yaml").read_text(), re.M))
    expect(found == {support.version()}, f"Chart.yaml has other versions than Cargo.toml: {found}")


def conforms_to_schemas():
    for version in (OLDEST, RECENT):
        for values in (DEFAULT, EVERYTHING, LEAST):
            lint = helm("lint", "--strict", "--quiet", "--kube-version", version, CHART, *flags(values))
            expect(lint.returncode == 0, lint.stdout + lint.stderr)
            is_valid, output = conforms(version, render(version, values))
            expect(is_valid, output)
            print(f"chart: {output}", end="")
    wrong = render(OLDEST, DEFAULT).replace("\n  replicas:", "\n  replica:")
    expect(not conforms(OLDEST, wrong)[0], "kubeconform accepts anything")
    wrong = render(OLDEST, EVERYTHING).replace("\n  jobLabel:", "\n  jobLabels:")
    expect(not conforms(OLDEST, wrong)[0], "kubeconform accepts any ServiceMonitor")


def refuses(values, message):
    done = try_render(OLDEST, values)
    expect(done.returncode != 0, f"helm accepts {values}")
    expect(message in done.stderr, f"helm does not say '{message}' for {values}, but: {done.stderr}")


def kinds(manifests):
    return {document["kind"]: document for document in yaml.safe_load_all(manifests)}


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


def keeps_pods_from_admin(default, everything):
    """By default only the node, with its probes, reaches --admin."""
    rules = lambda manifests: manifests["NetworkPolicy"]["spec"]["ingress"]
    expect(rules(default) == [{"ports": [{"port": "memcached"}]}], f"the default policy is {rules(default)}")
    admin = [rule for rule in rules(everything) if rule["ports"] == [{"port": "admin"}]]
    expect(len(admin) == 1 and admin[0]["from"] and rules(everything)[0]["from"], f"the policy is {rules(everything)}")


def is_in_the_book(rendered):
    page = (ROOT / "docs/src/kubernetes.md").read_text()
    shown = re.findall(r"^```yaml\n# rendered\n(.*?)^```", page, re.M | re.S)
    expect(shown and all(block in rendered for block in shown), "kubernetes.md shows other manifests than helm makes (the blocks after `# rendered`)")


# --- A container


def run(manifests, image):
    prepare()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        pod = kinds(manifests)["StatefulSet"]["spec"]["template"]["spec"]
        (Path(folder) / "image").mkdir()
        volumes = make_volumes(Path(folder), pod["containers"][0])
        serves_and_stops(Image(image, Path(folder) / "image"), pod, volumes, Path(folder))


def make_volumes(folder, container):
    """What the pod mounts. As the kubelet does, secrets consist of links, so that all files change
    at once; only root and the group of the pod can read them."""
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


main()
