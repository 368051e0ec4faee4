#!/usr/bin/python3
"""Checks the book: that a program draws the same pictures, that shell commands print the given
output, that links exist, and that it describes all statistics, metrics and alerts. (`cargo test`
compiles and runs its Rust snippets.)

    ci/docs.py                      checks all
    ci/docs.py --write              updates pictures, outputs and the table of metrics instead
    ci/docs.py --only PAGE FOLDER   only runs the commands of a page, with the programs in the folder: see ci/capi.sh
"""

import contextlib
import filecmp
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from support import ROOT, TARGET, cargo, debian, free_port, wait_until

PAGES = sorted((ROOT / "docs/src").glob("*.md"))
OTHERS = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
OTHERS += sorted(ROOT.glob("crates/*/README.md")) + sorted(ROOT.glob("results/**/README.md"))
PORT = "11211"

# These pages need the C library and a C compiler; capi.sh runs them.
RUN_ELSEWHERE = ["tutorial-c.md"]

# A message that a server prints only if it runs as root.
WARNING = re.compile(r"^ WARN relativistd: running as root;.*\n", re.M)
# A block of commands, and their output, if a block of text follows at once.
BLOCK = re.compile(r"^```sh\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.M | re.S)

# An optimized build takes minutes, so the commands run the programs that `cargo test` has built,
# and `cargo install` only checks that its folder exists. `cargo run` runs in the checkout, or it
# would build everything again.
PRELUDE = """\
set -euo pipefail
cargo() {
  case "$*" in
    install*) [ -f "${*: -1}/src/main.rs" ] || { echo "no program in ${*: -1}" >&2; return 1; } ;;
    run*--package*) (cd "$CHECKOUT"; command cargo "$@") ;;
    *) CARGO_TARGET_DIR=$PWD/../target command cargo "$@" ;;
  esac
}
# A page stops the servers that it starts. This is for pages that fail.
trap 'for file in *.pid; do [ ! -e "$file" ] || kill "$(cat "$file" 2>/dev/null)" 2>/dev/null || true; done' EXIT
"""


def main():
    if sys.argv[1:2] == ["--only"]:
        page, programs = sys.argv[2:]
        problems = run(ROOT / "docs/src" / page, programs, False)
    else:
        problems = check(write=sys.argv[1:] == ["--write"])
    for problem in problems:
        print(f"docs: {problem}", file=sys.stderr)
    return 1 if problems else 0


def check(write):
    debian("nc", "netcat-openbsd")
    debian("openssl", "openssl")
    # The same build as that of `cargo test`, so after `cargo test` there is nothing to build.
    cargo("test", "--workspace", "--locked", "--no-run", "--quiet")
    programs = TARGET / "debug"
    problems = pictures(programs, write) + missing_pages() + undescribed_alerts()
    problems += [problem for page in PAGES if page.name not in RUN_ELSEWHERE for problem in run(page, programs, write)]
    problems += [problem for page in PAGES + OTHERS for problem in dead_links(page)]
    with everything(programs) as server:
        problems += undescribed_statistics(server) + undescribed_metrics(server, write)
    return problems + build_book()


def pictures(programs, write):
    """Pictures that a program draws from tables."""
    drawn = ROOT / "docs/src/pictures"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([programs / "examples/pictures", drawn if write else folder], check=True)
        if write:
            return []
        found = filecmp.dircmp(drawn, folder)
        names = found.left_only + found.right_only + found.diff_files
    return [f"the picture {name} is out of date: run ci/docs.py --write" for name in names]


def build_book():
    """mdbook is not in Debian."""
    if not shutil.which("mdbook"):
        return []
    with tempfile.TemporaryDirectory() as folder:
        built = subprocess.run(["mdbook", "build", "--dest-dir", folder, ROOT / "docs"])
    return [] if built.returncode == 0 else ["mdbook does not build the book"]


def run(page, programs, write):
    """Runs the commands of a page, one block after the other in one shell, in a folder of links to
    the checkout's files."""
    text = page.read_text()
    blocks = list(BLOCK.finditer(text))
    if not blocks:
        return []
    port = str(free_port())
    with tempfile.TemporaryDirectory() as outputs:
        folder = Path(outputs) / "checkout"
        folder.mkdir()
        for entry in ROOT.iterdir():
            os.symlink(entry, folder / entry.name)
        script = PRELUDE
        for number, block in enumerate(blocks):
            commands = re.sub(rf"\b{PORT}\b", port, block[1])
            script += f"{{\n{commands}}} >{outputs}/{number} 2>&1\n"
        environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "CHECKOUT": str(ROOT), "CARGO_NET_OFFLINE": "true"}
        status = subprocess.run(["bash", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL).returncode
        printed = [Path(outputs) / str(number) for number in range(len(blocks))]
        printed = [cleaned(file.read_text(), port, folder) if file.exists() else None for file in printed]
    if status != 0:
        last = max(number for number, output in enumerate(printed) if output is not None)
        return [f"{page.name}: status {status} of\n{blocks[last][1]}which printed\n{printed[last]}"]
    wrong = [(block, output) for block, output in zip(blocks, printed) if block[2] not in (None, output)]
    if write:
        for block, output in reversed(wrong):
            text = text[: block.start(2)] + output + text[block.end(2) :]
        page.write_text(text)
        return []
    return [f"{page.name}: {block[1]}prints\n{output}instead of\n{block[2]}" for block, output in wrong]


def cleaned(output, port, folder):
    """The output without parts that vary. Pages write dots for the folder in which they run."""
    return WARNING.sub("", output.replace("\r\n", "\n").replace(port, PORT).replace(f"{folder}/", ".../"))


def dead_links(page):
    """Relative links to files or headings that do not exist."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield f"{page.name}: {target} does not exist"
        elif anchor and anchor not in headings(file):
            yield f"{page.name}: no heading for {target}"


def headings(file):
    titles = re.findall(r"^#+ (.*)$", file.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def missing_pages():
    summary = (ROOT / "docs/src/SUMMARY.md").read_text()
    listed = set(re.findall(r"\(([\w-]+\.md)\)", summary))
    return [f"SUMMARY.md lacks {page.name}" for page in PAGES if page.name not in listed | {"SUMMARY.md"}]


@contextlib.contextmanager
def everything(programs):
    """A server with all that has statistics of its own: the path of its socket, the port of
    --admin, and the process."""
    with tempfile.TemporaryDirectory() as folder:
        path, pid, key, certificate = f"{folder}/socket", Path(folder) / "pid", f"{folder}/key", f"{folder}/certificate"
        certify = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x", "-keyout", key, "-out", certificate]
        subprocess.run(certify, check=True, stderr=subprocess.DEVNULL)
        extended = f"idle_timeout=60,ssl_session_cache,ssl_chain_cert={certificate},ssl_key={key}"
        port = str(free_port())
        users = Path(folder) / "users"
        users.write_text("reader:secret\n[tenant team memory=25%]\nteam:secret\n")
        options = ["-d", "-s", path, "-P", str(pid), "-D", ":", "-Z", "-o", extended, "--admin", port, "--snapshot", f"{folder}/items", "-Y", str(users)]
        subprocess.run([f"{programs}/relativistd", *options], check=True, stderr=subprocess.DEVNULL)
        process = int(pid.read_text())
        try:
            yield path, port, process
        finally:
            os.kill(process, signal.SIGTERM)
            # It writes a snapshot to the folder.
            wait_until("end of the server", lambda: not pid.exists())


def undescribed_statistics(server):
    """Statistics that the server reports and the page does not describe, and the other way round."""
    described = set(re.findall(r"^\| `([^`]+)`", (ROOT / "docs/src/stats.md").read_text(), re.M))
    # Some statistics are there only after a thousand requests.
    ask(server[0], ["set a:b 0 0 1\r\nx", *1000 * ["get a:b"]])
    wait_until("estimate", lambda: "status ready" in ask(server[0], ["stats sizing"]))
    groups = ("", " settings", " items", " slabs", " sizes", " conns", " table", " memory", " hotkeys", " sizing")
    answer = ask(server[0], [f"stats{group}" for group in groups])
    names = re.findall(r"^STAT (\S+)", answer, re.M)
    reported = {re.sub(r"(^|:)\d+:", r"\1N:", re.sub(r"^chains_of_\d+", "chains_of_N", re.sub("^(read|write):", "KIND:", name))) for name in names}
    return [f"stats.md lacks {name}" for name in sorted(reported - described)] + [
        f"stats.md describes {name}, which the server does not report" for name in sorted(described - reported)
    ]


def ask(path, commands):
    """The server's replies."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        login = "set login 0 0 13\r\nreader secret"
        client.sendall("".join(f"{command}\r\n" for command in [login, *commands, "quit"]).encode())
        return b"".join(iter(lambda: client.recv(1 << 16), b"")).decode()


def undescribed_metrics(server, write):
    """The table of metrics is what the server says about them."""
    _, port, process = server
    os.kill(process, signal.SIGUSR2)
    wait_until("snapshot", lambda: "relativistd_snapshot_age_seconds" in fetch(port))
    text = fetch(port)
    kinds = dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.M))
    labels = {}
    for name, inner in re.findall(r"^(\w+)\{(.*)\} ", text, re.M):
        labels.setdefault(re.sub("_(bucket|sum|count)$", "", name), set()).update(re.findall(r'(\w+)="', inner))
    table = "| metric | type | labels | meaning |\n|---|---|---|---|\n"
    for name, meaning in sorted(re.findall(r"^# HELP (\S+) (.*)$", text, re.M)):
        names = ", ".join(f"`{label}`" for label in sorted(labels.get(name, ())))
        table += f"| `{name}` | {kinds[name]} | {names} | {meaning} |\n"
    page = ROOT / "docs/src/watch.md"
    start, old, after = re.fullmatch(r"(.*<!-- metrics -->\n)(.*)(<!-- end -->.*)", page.read_text(), re.S).groups()
    if write:
        page.write_text(start + table + after)
    return [] if write or old == table else ["watch.md: the table of metrics is out of date: run ci/docs.py --write"]


def fetch(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        return reply.read().decode()


def undescribed_alerts():
    """Alerts that the page does not describe, and the other way round."""
    described = set(re.findall(r"^\| `(Relativistd\w+)`", (ROOT / "docs/src/watch.md").read_text(), re.M))
    alerts = set(re.findall(r"alert: (\w+)", (ROOT / "deploy/prometheus/relativistd.rules.yml").read_text()))
    return [f"watch.md and the alert rules disagree about {name}" for name in sorted(alerts ^ described)]


sys.exit(main())
