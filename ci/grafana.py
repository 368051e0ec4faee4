"""Checks that Grafana finds the dashboard and its data source. Copies the files of deploy/grafana
as the book says, and follows them as Grafana does: from the provisioning files to the dashboard,
from its panels to the data source, from the data source to Prometheus. ci/watch.py runs this.
Grafana itself is not in Debian. Prometheus answers the queries of the panels: see ci/watch.py."""

import json
import re
import shlex
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from support import ROOT, fail

# https://grafana.com/docs/grafana/latest/administration/provisioning. Grafana ignores what it does
# not know.
PROVIDER = {"name", "orgId", "folder", "folderUid", "type", "disableDeletion", "updateIntervalSeconds", "allowUiUpdates", "options"}
SOURCE = {"name", "type", "access", "orgId", "uid", "url", "user", "database", "basicAuth", "basicAuthUser", "withCredentials"}
SOURCE |= {"isDefault", "jsonData", "secureJsonData", "version", "editable"}
# Of the type "prometheus".
JSON_DATA = {"timeInterval", "queryTimeout", "httpMethod", "manageAlerts", "prometheusType", "prometheusVersion", "cacheLevel"}
# What Grafana itself sets.
BUILT_IN = {"__rate_interval", "__interval", "__range", "__all"}


def main():
    with tempfile.TemporaryDirectory() as machine:
        install(Path(machine))
        source = the_one(Path(machine), "datasources")
        check_keys("data source", source, SOURCE)
        check_keys("jsonData", source["jsonData"], JSON_DATA)
        provider = the_one(Path(machine), "dashboards")
        check_keys("provider", provider, PROVIDER)
        check_keys("options", provider["options"], {"path", "foldersFromFilesStructure"})
        check("the provider reads files", provider["type"], "file")
        dashboards = list(Path(machine, provider["options"]["path"].lstrip("/")).glob("*.json"))
        check("the provider's folder has the dashboard", [path.name for path in dashboards], ["relativistd.json"])
        check_source(source)
        check_dashboard(json.loads(dashboards[0].read_text()), source)


def install(machine):
    """Runs the commands of the book, on a machine that has only the folders of Grafana's package."""
    for kind in ("dashboards", "datasources"):
        Path(machine, "etc/grafana/provisioning", kind).mkdir(parents=True)
    copied = set()
    for command in re.findall(r"^# ((?:mkdir|cp) .*)$", (ROOT / "docs/src/watch.md").read_text(), re.M):
        words = [f"{machine}{word}" if word.startswith("/") else word for word in shlex.split(command)]
        subprocess.run(words, cwd=ROOT, check=True)
        copied |= {ROOT / word for word in words if word.startswith("deploy/")}
    check("the book copies all files", copied, {path for path in ROOT.glob("deploy/grafana/**/*") if path.is_file()})


def the_one(machine, kind):
    """The one data source or provider of dashboards."""
    (file,) = Path(machine, "etc/grafana/provisioning", kind).iterdir()
    document = yaml.safe_load(file.read_text())
    (key,) = document.keys() - {"apiVersion"}
    check(f"{file.name} is one of {kind}", (document["apiVersion"], key), (1, "providers" if kind == "dashboards" else kind))
    (entry,) = document[key]
    return entry


def check_source(source):
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    check("the data source has the interval of Prometheus", source["jsonData"]["timeInterval"], config["global"]["scrape_interval"])
    check("Grafana's server asks Prometheus", source["access"], "proxy")
    usage = subprocess.run(["prometheus", "--help"], capture_output=True, text=True).stdout
    port = int(re.search(r'--web.listen-address="[^"]*:(\d+)"', usage)[1])
    check("the data source has the port of Prometheus", urlsplit(source["url"])[:2], ("http", f"127.0.0.1:{port}"))


def check_dashboard(dashboard, source):
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    check("the dashboard chooses among data sources of this type", variables["datasource"]["query"], source["type"])
    check("Grafana keeps the dashboard's address", dashboard["uid"], "relativistd")
    reference = {"type": source["type"], "uid": "${datasource}"}
    for user in users_of_sources(dashboard):
        check(f"{user.get('title') or user} asks the chosen data source", user["datasource"], reference)
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard))) - BUILT_IN
    check("the dashboard uses each of its variables, and no other", used, set(variables))


def users_of_sources(node):
    """All parts of a dashboard that name a data source."""
    if isinstance(node, list):
        for entry in node:
            yield from users_of_sources(entry)
    elif isinstance(node, dict):
        if "datasource" in node:
            yield node
        yield from users_of_sources(list(node.values()))


def check_keys(what, mapping, known):
    unknown = sorted(mapping.keys() - known)
    check(f"Grafana knows the keys of the {what}", unknown, [])


def check(what, found, expected):
    if found != expected:
        fail(f"not so: {what}: {found!r} instead of {expected!r}")


main()
print("grafana: the files lead from the dashboard to Prometheus")
