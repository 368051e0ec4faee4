"""What ci/release.sh does with files in JSON."""

import json
import sys
import zlib
from pathlib import Path

# What `cargo metadata` lists although a crate does not use it. Optional dependencies of toml, because a feature in use
# mentions them ("indexmap?/std"). And what nix uses for sockets, because it unites the features that all crates of the
# workspace ask for.
UNUSED = {"indexmap", "hashbrown", "toml_writer", "memoffset", "autocfg"}


def version():
    """Prints the version that the published crates share. Each of them must name its repository."""
    published = [package for package in json.load(sys.stdin)["packages"] if package["publish"] is None]
    versions = {package["version"] for package in published}
    if len(versions) != 1:
        sys.exit(f"release: the crates have several versions: {versions}")
    if missing := [package["name"] for package in published if not package["repository"]]:
        sys.exit(f"release: these crates have no `repository` in Cargo.toml: {', '.join(missing)}")
    print(versions.pop())


def compare(what, listed, linked):
    """Compares with the output of cargo tree: name, version with a v, and perhaps a remark, in each line."""
    lines = [line.split() for line in Path(linked).read_text().splitlines()]
    needed = {(line[0], line[1].removeprefix("v")) for line in lines if line}
    missing, superfluous = needed - listed, {package for package in listed - needed if package[0] not in UNUSED}
    for text, packages in (("lacks", missing), ("has a superfluous", superfluous)):
        for name, number in sorted(packages):
            print(f"release: {what} {text} {name} {number}", file=sys.stderr)
    print(f"release: {what} lists {len(listed)} packages")
    return bool(missing or superfluous)


def bill(file, linked):
    bill = json.loads(Path(file).read_text())
    packages = [bill["metadata"]["component"], *bill["components"]]
    unlicensed = [package["name"] for package in packages if not package.get("licenses")]
    assert not unlicensed, f"release: {file} does not say the licences of {unlicensed}"
    return compare(Path(file).name, {(package["name"], package["version"]) for package in packages}, linked)


def list_in_binary(file, linked):
    """The file is the section that cargo-auditable has put into a binary."""
    packages = json.loads(zlib.decompress(Path(file).read_bytes()))["packages"]
    return compare("the server", {(package["name"], package["version"]) for package in packages}, linked)


COMMANDS = {"version": version, "bill": bill, "list": list_in_binary}
sys.exit(COMMANDS[sys.argv[1]](*sys.argv[2:]))
