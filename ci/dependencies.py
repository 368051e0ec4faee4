"""Checks the dependencies in Cargo.lock against deny.toml, by the data of their packages: licences, sources, and whether
published crates have a dependency in two versions. cargo-deny also checks advisories, but needs the network."""

import json
import re
import subprocess
import sys
import tomllib

with open("deny.toml", "rb") as file:
    RULES = tomllib.load(file)
ALLOWED = set(RULES["licenses"]["allow"])
EXCEPTIONS = {entry["crate"]: set(entry["allow"]) for entry in RULES["licenses"]["exceptions"]}
BANNED = {entry["crate"] for entry in RULES["bans"]["deny"]}
MAY_BE_TWICE = {entry["crate"] for entry in RULES["bans"]["skip"]}
NOT_PUBLISHED = {"relativist-bench", "relativist-baselines", "relativist-testing"}
REGISTRIES = {f"registry+{url}" for url in RULES["sources"]["allow-registry"]}


def is_allowed(expression, allowed):
    """Whether an SPDX expression can be met with the licences that are allowed. (The slash is an old way to write OR.)"""
    tokens = re.findall(r"[()]|[^\s()/]+|/", expression)
    words, place = [], 0
    while place < len(tokens):
        token = tokens[place]
        if tokens[place + 1 : place + 2] == ["WITH"]:
            token, place = " ".join(tokens[place : place + 3]), place + 2
        place += 1
        words.append({"(": "(", ")": ")", "AND": "and", "OR": "or", "/": "or"}.get(token) or str(token in allowed))
    return eval(" ".join(words))  # Made of nothing but True, False, and, or, and parentheses.


def metadata(target):
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def problems(target):
    graph = metadata(target)
    packages = {package["id"]: package for package in graph["packages"]}
    edges = {node["id"]: node["deps"] for node in graph["resolve"]["nodes"]}
    for package in packages.values():
        name, licence, source = package["name"], package["license"], package["source"]
        if source is not None and source not in REGISTRIES:
            yield f"{name} comes from {source}"
        if not is_allowed(licence or "none", ALLOWED | EXCEPTIONS.get(name, set())):
            yield f"{name} is under {licence}"
        if name in BANNED:
            yield f"{name} is banned"
    # Visit the published crates and their dependencies, including those of the build, but not those
    # of tests.
    roots = [member for member in graph["workspace_members"] if packages[member]["name"] not in NOT_PUBLISHED]
    reached, versions = set(), {}
    while roots:
        package = roots.pop()
        if package not in reached:
            reached.add(package)
            versions.setdefault(packages[package]["name"], set()).add(packages[package]["version"])
            kinds = lambda edge: {kind["kind"] for kind in edge["dep_kinds"]}
            roots += [edge["pkg"] for edge in edges[package] if kinds(edge) != {"dev"}]
    for name, several in versions.items():
        if len(several) > 1 and name not in MAY_BE_TWICE:
            yield f"{name} is there in {len(several)} versions: {', '.join(sorted(several))}"
    print(f"dependencies: {len(packages)} for {target}, of which {len(reached)} are in published crates")


assert is_allowed("(MIT OR GPL-3.0) AND Zlib/GPL-3.0", {"MIT", "Zlib"}) and not is_allowed("MIT AND GPL-3.0", {"MIT"})
found = sorted({problem for target in RULES["graph"]["targets"] for problem in problems(target)})
for problem in found:
    print(f"dependencies: {problem}", file=sys.stderr)
sys.exit(bool(found))
