"""Prints the licences and notices of the crates that are linked into a package of this workspace, and of the macros with
which they are compiled: notices.py PACKAGE."""

import json
import subprocess
import sys
from pathlib import Path

NAMES = ("license", "licence", "copying", "copyright", "notice", "unlicense")


def main(name):
    target = next(line.split()[1] for line in output("rustc", "-vV").splitlines() if line.startswith("host:"))
    metadata = json.loads(output("cargo", "metadata", "--locked", "--format-version=1", "--filter-platform", target))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = next(key for key in metadata["workspace_members"] if packages[key]["name"] == name)
    crates = [packages[key] for key in linked(root, nodes) if packages[key]["source"]]
    print(f"Crates that are linked into {name}, besides Rust's standard library (MIT OR Apache-2.0, https://www.rust-lang.org):\n")
    texts = {}  # to labels, in order and without repetition
    for crate in sorted(crates, key=lambda crate: (crate["name"], crate["version"])):
        label = f"{crate['name']} {crate['version']}"
        print(f"{label}: {crate['license']}; {crate['repository'] or 'no address'}")
        for text in notices(Path(crate["manifest_path"]).parent):
            texts.setdefault(text, {})[label] = None
    for text, labels in texts.items():
        print(f"\n{'=' * 80}\n{', '.join(labels)}\n{'=' * 80}\n\n{text}")


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def linked(root, nodes):
    """The packages on which `root` depends other than for building or testing."""
    found, ahead = set(), [root]
    while ahead:
        key = ahead.pop()
        if key not in found:
            found.add(key)
            ahead += [dep["pkg"] for dep in nodes[key]["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
    return found


def notices(folder):
    files = (file for file in sorted(folder.rglob("*")) if file.is_file() and file.name.lower().startswith(NAMES))
    # A source file can have such a name, too.
    return [file.read_text(errors="replace").strip() for file in files if file.suffix.lower() in ("", ".md", ".txt", ".apache2", ".mit")]


if __name__ == "__main__":
    main(*sys.argv[1:])
