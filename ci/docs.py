"""Checks the book: commands, links, words, statistics. docs.sh runs it: docs.py FOLDER_OF_PROGRAMS [--write]. With --only PAGE it runs only
the commands of that page, which may need more than those of the others: see capi.sh."""

import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs/src").glob("*.md"))
OTHERS = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
OTHERS += sorted(ROOT.glob("crates/*/README.md")) + sorted(ROOT.glob("results/*/README.md"))
PORT = "11211"

# These pages need the C library and a C compiler; capi.sh runs them.
RUN_ELSEWHERE = ["tutorial-c.md"]

# A message that a server prints only if it runs as root.
WARNING = re.compile(r"^ WARN relativistd: running as root;.*\n", re.M)
# A block of commands, and their output, if a block of text follows at once.
BLOCK = re.compile(r"^```sh\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.M | re.S)

# An optimized build takes minutes, so the commands run the programs that `cargo test` has built, and `cargo install`
# only checks that its folder exists. `cargo run` runs in the checkout, or it would build everything again.
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


def main(programs, write, only):
    pages = [page for page in PAGES if (page.name == only if only else page.name not in RUN_ELSEWHERE)]
    problems = [problem for page in pages for problem in run(page, programs, write)]
    if not only:
        problems += [problem for page in PAGES + OTHERS for problem in dead_links(page)]
        problems += [problem for page in PAGES + OTHERS for problem in forbidden_words(page)]
        problems += missing_pages() + undescribed_statistics(programs)
    for problem in problems:
        print(f"docs: {problem}", file=sys.stderr)
    return 1 if problems else 0


def run(page, programs, write):
    """Runs the commands of a page, one block after the other in one shell, in a folder of links to the checkout's files."""
    text = page.read_text()
    blocks = list(BLOCK.finditer(text))
    if not blocks:
        return []
    port = free_port()
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


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


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


def forbidden_words(page):
    """Words of ci/forbidden-words.txt, except in code."""
    text = re.sub(r"^```.*?^```$|`[^`]*`", lambda code: "\n" * code[0].count("\n"), page.read_text(), flags=re.M | re.S)
    for line in (ROOT / "ci/forbidden-words.txt").read_text().splitlines():
        pattern, _, instead = line.partition("\t")
        for match in re.finditer(pattern, text, re.I) if instead else ():
            number = text.count("\n", 0, match.start()) + 1
            yield f'{page.name}:{number}: "{match[0]}": write {instead}'


def missing_pages():
    summary = (ROOT / "docs/src/SUMMARY.md").read_text()
    listed = set(re.findall(r"\(([\w-]+\.md)\)", summary))
    return [f"SUMMARY.md lacks {page.name}" for page in PAGES if page.name not in listed | {"SUMMARY.md"}]


def undescribed_statistics(programs):
    """Statistics that the server reports and the page does not describe, and the other way round."""
    described = set(re.findall(r"^\| `([^`]+)`", (ROOT / "docs/src/stats.md").read_text(), re.M))
    with tempfile.TemporaryDirectory() as folder:
        path, pid, key, certificate = f"{folder}/socket", Path(folder) / "pid", f"{folder}/key", f"{folder}/certificate"
        certify = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x", "-keyout", key, "-out", certificate]
        subprocess.run(certify, check=True, stderr=subprocess.DEVNULL)
        extended = f"idle_timeout=60,ssl_session_cache,ssl_chain_cert={certificate},ssl_key={key}"
        options = ["-d", "-s", path, "-P", str(pid), "-D", ":", "-Z", "-o", extended]
        subprocess.run([f"{programs}/relativistd", *options], check=True, stderr=subprocess.DEVNULL)
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(path)
                client.sendall(b"set a:b 0 0 1\r\nx\r\n")
                for group in ("", " settings", " items", " slabs", " sizes", " conns", " table"):
                    client.sendall(f"stats{group}\r\n".encode())
                client.sendall(b"quit\r\n")
                answer = b"".join(iter(lambda: client.recv(1 << 16), b"")).decode()
        finally:
            os.kill(int(pid.read_text()), 15)
    names = re.findall(r"^STAT (\S+)", answer, re.M)
    reported = {re.sub(r"(^|:)\d+:", r"\1N:", re.sub(r"^chains_of_\d+", "chains_of_N", name)) for name in names}
    return [f"stats.md lacks {name}" for name in sorted(reported - described)] + [
        f"stats.md describes {name}, which the server does not report" for name in sorted(described - reported)
    ]


if __name__ == "__main__":
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else None
    sys.exit(main(sys.argv[1], "--write" in sys.argv, only))
