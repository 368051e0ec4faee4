#!/usr/bin/python3
"""Checks what a release publishes, in a clean clone of the commit. Publishes nothing itself.

    ci/release.py                       for a release: refuses a commit that is not ready, checks all, and prints the
                                        commands that publish
    ci/release.py --dry-run [CHECK...]  only the checks, or those that are named
    ci/release.py --write-api           writes ci/api

- packages: each published crate can be packaged, and built from its package. No dependency was
  yanked.
- features: each combination of a crate's features compiles without warnings (cargo-hack).
- interfaces: the public items of each library are those in ci/api/CRATE.txt (cargo-public-api). If
  lines are gone since the last release, which has a tag, the version is not compatible with it.
- dependencies: they have the licences, sources and versions that deny.toml allows (cargo-deny).
  Advisories are in a database outside the registry, so only a release checks them.
- bills: each crate has a bill of materials (cargo-cyclonedx), and the server's binary a list of its
  dependencies (cargo-auditable). Both have what cargo links.
- deb: the Debian packages (ci/packages.sh). Not in the clone, so that it need not build everything
  again.

The first run builds the tools. The packages, the bills and the server are in target/publish/files.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import zlib
from pathlib import Path

from support import ROOT, TARGET, debian, expect

# Not a library, and libraries without a stable interface.
WITHOUT_INTERFACE = {"relativistd", "relativist-core", "relativist-bucket"}
# Not published, but in a Debian package.
SHIPPED = {"relativist-capi"}
# Another compiler may write the interfaces in another way, or in a format that cargo-public-api
# does not know.
API_COMPILER = "1.95.0"
# What `cargo metadata` lists although a crate does not use it. Optional dependencies of toml,
# because a feature in use mentions them ("indexmap?/std"). And what nix uses for sockets, because
# it unites the features that all crates of the workspace ask for.
UNUSED = {"indexmap", "equivalent", "hashbrown", "toml_writer", "memoffset", "autocfg"}

WORK = TARGET / "publish"
CLONE, FILES, BUILD = WORK / "source", WORK / "files", WORK / "build"


def main():
    mode, names = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    expect(mode in ("", "--dry-run", "--write-api"), "usage: ci/release.py [--dry-run [CHECK...] | --write-api]")
    os.environ |= {"CARGO_TARGET_DIR": str(BUILD), "CARGO_INCREMENTAL": "0", "CARGO_PROFILE_DEV_DEBUG": "0"}
    if mode == "--write-api":
        return write_interfaces()
    if not mode:
        ready()
    clean_clone()
    os.environ["RUSTFLAGS"] = "-D warnings"
    for name in names or CHECKS:
        start = time.monotonic()
        CHECKS[name](is_release=not mode)
        print(f"release: {name} took {time.monotonic() - start:.0f} s")
    shutil.rmtree(WORK / "tools/build", ignore_errors=True)
    if not mode:
        print("release: everything passed. To publish, run")
        for package in published():
            print(f"  cargo publish --locked --package {package['name']}")


# --- Tools


def run(*command, folder=CLONE, **options):
    return subprocess.run([str(word) for word in command], cwd=folder, check=True, **options)


def output(*command, folder=CLONE, **options):
    return run(*command, folder=folder, stdout=subprocess.PIPE, text=True, **options).stdout


def tool(name, version):
    """Builds a tool, unless it exists. Optimization would take more time than it saves. The tools
    share dependencies, and so a folder of builds."""
    root = WORK / f"tools/{name}-{version}"
    os.environ["PATH"] = f"{root}/bin:{os.environ['PATH']}"
    if not (root / "bin" / name).exists():
        profile = {"OPT_LEVEL": "0", "LTO": "off", "DEBUG": "0", "CODEGEN_UNITS": "16"}
        environment = os.environ | {f"CARGO_PROFILE_RELEASE_{key}": value for key, value in profile.items()}
        environment |= {"CARGO_TARGET_DIR": str(WORK / "tools/build"), "RUSTFLAGS": ""}
        run("cargo", "install", "--quiet", "--locked", "--root", root, f"{name}@{version}", folder=ROOT, env=environment)


def published():
    """The published packages, in the order of their dependencies."""
    packages = json.loads(output("cargo", "metadata", "--no-deps", "--format-version", "1", folder=ROOT))["packages"]
    left, ordered = {package["name"]: package for package in packages if package["publish"] is None}, []
    while left:
        ready = [name for name in left if not left.keys() - {name} & needs(left[name])]
        expect(ready, f"these packages depend on each other: {', '.join(left)}")
        ordered += [left.pop(name) for name in sorted(ready)]
    return ordered


def needs(package):
    return {dependency["name"] for dependency in package["dependencies"] if dependency["kind"] != "dev"}


def members():
    return json.loads(output("cargo", "metadata", "--no-deps", "--format-version", "1"))["packages"]


def selected(packages):
    return [f"--package={package['name']}" for package in packages]


# --- The commit


def ready():
    """Fails if the commit cannot be released."""
    packages, commit = published(), output("git", "rev-parse", "HEAD", folder=ROOT).strip()
    versions = {package["version"] for package in packages}
    expect(len(versions) == 1, f"the crates have several versions: {versions}")
    missing = [package["name"] for package in packages if not package["repository"]]
    expect(not missing, f"these crates have no `repository` in Cargo.toml: {', '.join(missing)}")
    (version,) = versions
    expect(is_clean(), "the working tree has changes that are not committed")
    passed = TARGET / "ci-passed"
    expect(passed.exists() and passed.read_text().strip() == commit, f".ci/run has not passed on {commit} in this checkout")
    expect(f"v{version}" not in tags(), f"version {version} was released: there is a tag v{version}")
    changes = (ROOT / "CHANGELOG.md").read_text()
    expect(re.search(rf"^## {version} ", changes, re.M), f'CHANGELOG.md has no section "## {version} (DATE)"')


def is_clean():
    return not output("git", "status", "--porcelain", folder=ROOT)


def tags():
    """The tags of releases, the last one first."""
    return output("git", "tag", "--list", "v*", "--sort=-version:refname", folder=ROOT).split()


def clean_clone():
    """In a clone, a crate that needs a file which was not committed does not build."""
    if not is_clean():
        print("release: leaves out what is not committed", file=sys.stderr)
    for folder in (CLONE, FILES, BUILD / "package"):
        shutil.rmtree(folder, ignore_errors=True)
    FILES.mkdir(parents=True)
    run("git", "clone", "--quiet", ROOT, CLONE, folder=ROOT)
    run("git", "--no-pager", "log", "-1", "--format=release: checks %h, %s")


# --- Checks


def packages(**_):
    # Cargo unpacks the packages into its home, and would build those of an earlier run: versions
    # are the same.
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    for folder in home.glob("registry/src/-*/relativist*"):
        shutil.rmtree(folder)
    log = output("cargo", "package", "--locked", *selected(published()), stderr=subprocess.STDOUT)
    print(log, end="")
    expect("is yanked in" not in log, "a dependency has been yanked")
    for file in (BUILD / "package").glob("*.crate"):
        shutil.copy(file, FILES)


def features(**_):
    tool("cargo-hack", "0.6.46")
    run("cargo", "hack", "check", "--quiet", "--locked", "--feature-powerset", *selected(published()))


def dependencies(is_release):
    tool("cargo-deny", "0.20.2")
    deny = ["cargo", "deny", "--locked"]
    check = ["check", "--hide-inclusion-graph"]
    run(*deny, *check, "licenses", "sources")
    # The competitors of the benchmarks bring dependencies in several versions.
    shipped = {package["name"] for package in published()} | SHIPPED
    others = [word for package in members() if package["name"] not in shipped for word in ("--exclude", package["name"])]
    run(*deny, *others, *check, "bans")
    if is_release:
        run(*deny, *check, "advisories")


def deb(**_):
    environment = {name: value for name, value in os.environ.items() if name != "RUSTFLAGS"}
    run(ROOT / "ci/packages.sh", folder=ROOT, env=environment | {"CARGO_TARGET_DIR": str(TARGET)})
    for file in (TARGET / "packages").glob("*.deb"):
        shutil.copy(file, FILES)


# --- Interfaces


def libraries():
    return [package for package in published() if package["name"] not in WITHOUT_INTERFACE]


def interface(package, folder):
    """The public items of a library, one a line."""
    tool("cargo-public-api", "0.52.0")
    # The format of rustdoc is unstable. RUSTC_BOOTSTRAP makes a stable compiler accept that.
    environment = os.environ | {"RUSTUP_TOOLCHAIN": API_COMPILER, "RUSTC_BOOTSTRAP": "1", "RUSTFLAGS": ""}
    crate = ["--quiet", "--locked", "--lib", "--all-features", "--package", package["name"]]
    run("cargo", "rustdoc", *crate, "--", "-Z", "unstable-options", "--output-format", "json", folder=folder, env=environment)
    # Leaves out blanket implementations and auto traits.
    made = BUILD / f"doc/{package['name'].replace('-', '_')}.json"
    text = output("cargo", "public-api", "--rustdoc-json", made, "--color", "never", "-ss", folder=folder)
    expect(text, f"{package['name']} has no public items")
    return text


def install_compiler():
    installed = output("rustup", "toolchain", "list", folder=ROOT)
    if not re.search(rf"^{re.escape(API_COMPILER)}-", installed, re.M):
        run("rustup", "toolchain", "install", API_COMPILER, "--profile", "minimal", folder=ROOT)


def write_interfaces():
    install_compiler()
    folder = ROOT / "ci/api"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for package in libraries():
        (folder / f"{package['name']}.txt").write_text(interface(package, ROOT))


def interfaces(**_):
    install_compiler()
    files = {path.stem for path in (CLONE / "ci/api").glob("*.txt")}
    wrong = sorted(files ^ {package["name"] for package in libraries()})
    for package in libraries():
        name = package["name"]
        if name in files and (changes := changed_lines((CLONE / f"ci/api/{name}.txt").read_text(), interface(package, CLONE))):
            wrong.append(name)
            print(f"release: {name} differs from ci/api/{name}.txt:", *changes, sep="\n  ", file=sys.stderr)
    expect(not wrong, f"ci/api does not have the interfaces of {', '.join(wrong)}: run ci/release.py --write-api")
    if tags():
        compatible_with(tags()[0])


def changed_lines(before, after):
    before, after = before.splitlines(), after.splitlines()
    gone, new = (sorted(set(one) - set(other)) for one, other in ((before, after), (after, before)))
    changes = [f"- {line}" for line in gone] + [f"+ {line}" for line in new]
    return changes or (["in the order of lines"] if before != after else [])


def compatible_with(tag):
    """Fails if public items of the release are gone or have changed, and the version does not allow
    that."""
    files = output("git", "ls-tree", "--name-only", tag, "ci/api/").split()
    for package in libraries():
        file = f"ci/api/{package['name']}.txt"
        before = set(output("git", "show", f"{tag}:{file}").splitlines()) if file in files else set()
        gone = before - set((CLONE / file).read_text().splitlines())
        is_allowed = compatible_part(package["version"]) != compatible_part(tag.removeprefix("v"))
        expect(not gone or is_allowed, f"{package['name']} lacks what {tag} has, so its version must increase: {sorted(gone)}")


def compatible_part(version):
    major, minor, _ = version.split(".", 2)
    return (major, minor) if major == "0" else (major,)


# --- Bills of materials


def bills(is_release):
    """Comes after the other checks in the clone, because it changes the clone."""
    debian("objcopy", "binutils")
    tool("cargo-hack", "0.6.46")
    tool("cargo-cyclonedx", "0.5.9")
    tool("cargo-auditable", "0.7.7")
    crates = [package["name"] for package in members() if package["publish"] is None or package["name"] in SHIPPED]
    triple = re.search(r"^host: (.*)$", output("rustc", "--version", "--verbose"), re.M)[1]
    needed = {crate: linked(crate, triple) for crate in crates}
    only_published()
    environment = os.environ | {"SOURCE_DATE_EPOCH": output("git", "log", "-1", "--format=%ct").strip()}
    run("cargo", "cyclonedx", "--quiet", "--format", "json", "--target", triple, env=environment)
    for crate in crates:
        (made,) = CLONE.glob(f"crates/*/{crate}.cdx.json")
        # The paths in a bill contain this folder, which exists nowhere else.
        file = FILES / made.name
        file.write_text(made.read_text().replace(f"{CLONE}/", ""))
        compare(made.name, packages_of_bill(file), needed[crate])
    compare("the server", packages_of_server(is_release, environment), needed["relativistd"])


def linked(crate, triple):
    """Names and versions of what is linked into the crate, or runs while it is built."""
    flags = ["--edges", "normal,build", "--target", triple, "--prefix", "none", "--format", "{p}"]
    lines = [line.split() for line in output("cargo", "tree", "--quiet", "--locked", "--package", crate, *flags).splitlines()]
    return {(line[0], line[1].removeprefix("v")) for line in lines if line}


def only_published():
    """The tools for bills read `cargo metadata`. It also lists what only tests, models or crates
    that are not published need. So this removes them from the clone."""
    run("cargo", "hack", "--workspace", "--remove-dev-deps")
    folders = []
    for package in members():
        file = Path(package["manifest_path"])
        file.write_text(re.sub(r"^\[target\.'cfg\(relativist_.*?(?:^$|\Z)", "", file.read_text(), flags=re.M | re.S))
        if package["publish"] is None or package["name"] in SHIPPED:
            folders.append(file.parent.relative_to(CLONE).as_posix())
    workspace = CLONE / "Cargo.toml"
    workspace.write_text(re.sub(r"^members = .*", f"members = {json.dumps(folders)}", workspace.read_text(), flags=re.M))


def packages_of_bill(file):
    bill = json.loads(file.read_text())
    packages = [bill["metadata"]["component"], *bill["components"]]
    unlicensed = [package["name"] for package in packages if not package.get("licenses")]
    expect(not unlicensed, f"{file.name} does not say the licences of {unlicensed}")
    return {(package["name"], package["version"]) for package in packages}


def packages_of_server(is_release, environment):
    """What cargo-auditable has put into a section of the server's binary."""
    profile, folder = ("release", "release") if is_release else ("dev", "debug")
    run("cargo", "auditable", "build", "--quiet", "--profile", profile, "--package", "relativistd", env=environment)
    program, section = FILES / "relativistd", WORK / "dependencies"
    shutil.copy(BUILD / folder / "relativistd", program)
    run("objcopy", "--dump-section", f".dep-v0={section}", program, "/dev/null")
    packages = json.loads(zlib.decompress(section.read_bytes()))["packages"]
    return {(package["name"], package["version"]) for package in packages}


def compare(what, listed, needed):
    missing, superfluous = needed - listed, {package for package in listed - needed if package[0] not in UNUSED}
    expect(not missing, f"{what} lacks {sorted(missing)}")
    expect(not superfluous, f"{what} has the superfluous {sorted(superfluous)}")
    print(f"release: {what} lists {len(listed)} packages")


CHECKS = {check.__name__: check for check in (packages, features, interfaces, dependencies, bills, deb)}
main()
