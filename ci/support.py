"""Functions that the Python scripts in this folder share: Debian's packages, builds, servers,
waiting."""

import contextlib
import getpass
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve()
# Seconds. Only a hang takes longer.
PATIENCE = 60
# What this script prints stands between the outputs of the commands that it runs.
sys.stdout.reconfigure(line_buffering=True)


def fail(problem):
    raise SystemExit(f"{Path(sys.argv[0]).stem}: {problem}")


def expect(condition, problem):
    if not condition:
        fail(problem)


def wait_until(what, attempt, pause=0.02):
    """Returns the attempt's first true result. An attempt that raises an OSError is repeated."""
    end = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError):
            if result := attempt():
                return result
        expect(time.monotonic() < end, f"no {what} after {PATIENCE} s")
        time.sleep(pause)


# --- Packages and builds


def debian_sh(function, *arguments):
    """Calls a function of ci/debian.sh."""
    subprocess.run(["bash", "-euc", 'source ci/debian.sh; "$@"', "-", function, *map(str, arguments)], cwd=ROOT, check=True)


def debian(command, *packages):
    """Installs Debian packages unless the command, or the file, exists."""
    debian_sh("debian", command, *packages)


def as_root(*command):
    """The command, run as root."""
    return [*([] if os.geteuid() == 0 else ["sudo"]), *map(str, command)]


def cargo(*arguments):
    subprocess.run(["cargo", *map(str, arguments)], cwd=ROOT, check=True)


def build_server():
    """Builds the server with optimization, and returns the path of the program."""
    cargo("build", "--release", "--locked", "--package", "relativistd")
    return TARGET / "release/relativistd"


def build_bench():
    """Returns the path of relativist-bench. Any build does, and `cargo test` has made one."""
    program = TARGET / "debug/relativist-bench"
    if not program.exists():
        cargo("build", "--locked", "--package", "relativist-bench")
    return program


def version():
    package = subprocess.run(["cargo", "pkgid", "--package", "relativistd"], cwd=ROOT, capture_output=True, text=True, check=True)
    return re.search(r"[#@]([0-9.]+)$", package.stdout.strip())[1]


def memcached_1_6_45():
    """Returns the command of memcached 1.6.45 with its proxy, from Debian sid. Debian 12 has an older
    one without it."""
    folder = TARGET / "memcached-proxy"
    if not folder.exists():
        packages = ["memcached", "libc6", "libevent-2.1-7t64", "liblua5.4-0", "libsasl2-2", "libssl3t64"]
        debian_sh("unpack_from", "sid", folder, *packages)
    libraries = folder / "usr/lib/x86_64-linux-gnu"
    loader = [libraries / "ld-linux-x86-64.so.2", "--library-path", libraries]
    return [str(word) for word in (*loader, folder / "usr/bin/memcached", "-u", getpass.getuser())]


def install_clients():
    """Installs clients of other projects. Returns their folder."""
    install_node(TARGET / "interop", "memjs@1.3.2", "memcached@2.2.2")
    install_python(TARGET / "interop", *(ROOT / "ci/interop/requirements.txt").read_text().split())
    return TARGET / "interop"


def install_node(folder, *packages):
    """Installs packages for Node, into node_modules of the folder."""
    debian("node", "nodejs")
    debian("npm", "npm")
    npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder]
    once(folder / "node-packages", packages, lambda: debian_sh("retry", *npm, *packages))


def install_python(folder, *packages):
    """Installs packages for Python, into an environment in the folder."""

    def install():
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--clear", folder / "python"], check=True)
        debian_sh("retry", python_in(folder), "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages)

    debian("/usr/share/python-wheels", "python3-venv")
    once(folder / "python-packages", packages, install)


def once(file, packages, install):
    """Calls `install`, unless the file says that these packages are installed."""
    wanted = " ".join(packages)
    if not file.exists() or file.read_text() != wanted:
        file.parent.mkdir(parents=True, exist_ok=True)
        install()
        file.write_text(wanted)


def python_in(folder):
    return folder / "python/bin/python"


def run_in(folder):
    """Runs this script again with the Python that `install_python` has made."""
    if Path(sys.prefix) != folder / "python":
        os.execv(python_in(folder), [python_in(folder), *sys.argv])


# --- Servers


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def wait_for_port(port):
    def listens():
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    wait_until(f"server on port {port}", listens)


class Server:
    """A server on a port of its own. At the end of a `with` it must end by itself, without an
    error."""

    def __init__(self, program, *options, environment=None):
        with tempfile.TemporaryDirectory() as folder:
            ports = Path(folder) / "ports"
            command = [program, "-p", "-1", "-l", "127.0.0.1", *options]
            environment = os.environ | {"MEMCACHED_PORT_FILENAME": str(ports)} | (environment or {})
            self.process = subprocess.Popen([str(word) for word in command], env=environment)
            self.port = int(wait_until("port of the server", lambda: self.find_port(ports)))

    def find_port(self, ports):
        expect(self.process.poll() is None, "the server exited")
        return ports.exists() and (found := re.search(r"TCP INET: (\d+)", ports.read_text())) and found[1]

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.process.terminate()
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = "SIGKILL, because it did not stop on SIGTERM"
        # Another failure is already on its way.
        expect(kind or status == 0, f"the server ended with {status}")
