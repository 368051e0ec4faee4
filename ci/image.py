#!/usr/bin/python3
"""Builds the image of deploy/image with buildah, as an archive that docker, podman and registries
accept (target/image/relativistd.tar), and runs it rootless with crun: without privileges, with a
read-only root, with a memory limit, and with io_uring forbidden. With --build-only it only builds.
The program is that of the release build, so an image for another architecture has to be built
there.

With --run ARCHIVE it only runs an image, in namespaces that the caller has made (ci/container.py)."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from container import HOST_ID, Image, ask, enter, kills, memory_group, peak, prepare
from support import PATIENCE, ROOT, TARGET, as_root, build_server, debian, expect, version, wait_until

FOLDER = TARGET / "image"
ARCHIVE = FOLDER / "relativistd.tar"
MAX_BYTES = 15_000_000
VALUE = b"x" * 100_000


def main():
    if sys.argv[1:2] == ["--run"]:
        return check(sys.argv[2])
    build()
    if sys.argv[1:] != ["--build-only"]:
        subprocess.run(as_root("unshare", "--mount", "--net", sys.executable, __file__, "--run", ARCHIVE), check=True)


# --- Building


def build():
    for tool, package in (("buildah", "buildah"), ("crun", "crun"), ("strip", "binutils")):
        debian(tool, "--no-install-recommends", package)
    server, name = build_server(), f"relativistd:{version()}"
    discard()
    try:
        fill_root(server)
        # Without times the same files make the same image.
        file = ["--file", ROOT / "deploy/image/Containerfile"]
        buildah("bud", "--quiet", "--timestamp", "0", *file, "--tag", name, FOLDER, stdout=subprocess.DEVNULL)
        ARCHIVE.unlink(missing_ok=True)
        buildah("push", "--quiet", name, f"oci-archive:{ARCHIVE}:{name}")
    finally:
        discard()


def buildah(*arguments, **options):
    # Storage of its own, so that nothing is left in the caller's.
    storage = ["--root", FOLDER / "storage", "--runroot", FOLDER / "run", "--storage-driver", "vfs"]
    subprocess.run(as_root("buildah", *storage, *arguments), check=True, **options)


def discard():
    subprocess.run(as_root("rm", "-rf", *(FOLDER / name for name in ("storage", "run", "root"))), check=True)


def fill_root(server):
    """Makes the image's files: the program, its libraries, and folders."""
    root = FOLDER / "root"
    program, licences = root / "usr/bin/relativistd", root / "usr/share/doc/relativistd"
    # Runtimes mount file systems to the others. Some cannot make these folders.
    for folder in (program.parent, licences, *(root / name for name in ("dev", "etc", "proc", "sys"))):
        folder.mkdir(parents=True)
    subprocess.run(["strip", "--strip-debug", "-o", program, server], check=True)
    # The libraries and the dynamic loader, by the paths at which the program looks for them.
    libraries = subprocess.run(["ldd", server], capture_output=True, text=True, check=True).stdout
    for library in re.findall(r"/[^ ]+", libraries):
        subprocess.run(["install", "-D", "-m", "755", Path(library).resolve(), f"{root}{library}"], check=True)
    for licence in ROOT.glob("LICENSE-*"):
        shutil.copy(licence, licences)
    subprocess.run(["chmod", "-R", "u=rwX,go=rX", root], check=True)


# --- Checks


def check(archive):
    prepare()
    kernel_applies_limits()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        image = Image(archive, folder)
        expect(image.bytes < MAX_BYTES, f"the files of the image have {image.bytes} bytes")
        others = [file for file in image.root.rglob("bin/*") if file.name != "relativistd"]
        expect(not others, f"there are other programs: {others}")
        serves_without_privileges(image)
        takes_a_share_of_the_lowest_limit(image)
        refuses(image, ["--io=uring"], "cannot use io_uring (--io uring): Operation not permitted")
        refuses(image, ["--memory-limit=auto"], "64 MiB (/sys/fs/cgroup/", megabytes=64)
        (Path(folder) / "hosts").write_text("127.0.0.1 cache.example\n")
        with image.run(["--check", "--listen=cache.example"], [(f"{folder}/hosts", "/etc/hosts", "ro")]) as container:
            expect(container.end() == 0, "names are not looked up")
    print(f"image: {image.packed_bytes / 1e6:.1f} MB packed, {image.bytes / 1e6:.1f} MB unpacked; all as expected")


def kernel_applies_limits():
    """Otherwise the other checks would show nothing."""
    with memory_group(64) as group:
        too_much = [sys.executable, "-c", "print(len(b'x' * (128 << 20)))"]
        subprocess.run(too_much, preexec_fn=lambda: enter(group), stdout=subprocess.DEVNULL)
        expect(kills(group) > 0, "the kernel does not apply the memory limit of a control group")


def takes_a_share_of_the_lowest_limit(image):
    """The program alone, with -m auto in a control group whose parent has a lower limit than
    itself."""
    with memory_group(256) as outer, memory_group(1024, outer) as inner, tempfile.TemporaryDirectory() as folder:
        ports = Path(folder) / "ports"
        arguments = [image.root / "usr/bin/relativistd", "-m", "auto", "-p", "-1", "-u", "root"]
        environment = {**os.environ, "MEMCACHED_PORT_FILENAME": str(ports)}
        server = subprocess.Popen(arguments, env=environment, stderr=subprocess.DEVNULL, preexec_fn=lambda: enter(inner))
        try:
            port = wait_until("port", lambda: ports.exists() and re.search(r"INET: (\d+)", ports.read_text()))[1]
            expect(memory_limit(int(port)) == 160 << 20, "-m auto does not take a share of the lowest limit")
        finally:
            server.terminate()
            server.wait(PATIENCE)


def memory_limit(port=11211):
    """The limit that the server reports."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"stats\r\nquit\r\n")
        return int(re.search(rb"limit_maxbytes (\d+)", client.makefile("rb").read())[1])


def serves_without_privileges(image):
    """Serves by the image's own arguments, within 256 MiB although clients store twice as much."""
    with image.run() as container:
        wait_until("readiness", lambda: ask("/readyz") == (200, "ok\n"))
        status = dict(re.findall(r"^(\w+):\s+(.*)$", Path(f"/proc/{container.pid}/status").read_text(), re.M))
        expect(status["Uid"].split() == [str(HOST_ID)] * 4, f"the user is {status['Uid']}")
        expect(int(status["CapEff"], 16) == 0 and status["NoNewPrivs"] == "1" and status["Seccomp"] == "2", f"privileges: {status}")
        mounts = [line.split(" ") for line in Path(f"/proc/{container.pid}/mountinfo").read_text().splitlines()]
        expect(["ro" in mount[5].split(",") for mount in mounts if mount[4] == "/"] == [True], "root can be written")
        with socket.create_connection(("127.0.0.1", 11211)) as client:
            replies = client.makefile("rb")
            for number in range(5000):
                client.sendall(b"set key%d 0 0 %d\r\n%s\r\n" % (number, len(VALUE), VALUE))
                expect(replies.readline() == b"STORED\r\n", "a store failed")
            client.sendall(b"get key4999\r\n")
            expect(replies.readline() == b"VALUE key4999 0 %d\r\n" % len(VALUE), "the last value is lost")
        expect(memory_limit() == 160 << 20, "the server does not take a share of the container's memory")
        used = peak(container.group)
        expect(128 << 20 < used <= 256 << 20, f"the kernel has counted {used} bytes at most in the container")
        expect(kills(container.group) == 0, "the kernel killed a process for lack of memory")
        expect(container.stop() == 0, "the end was not clean")
        for line in ("io_uring unavailable (Operation not permitted (os error 1)); using epoll", "-m auto: 160 MiB for items and table, of 256 MiB"):
            expect(container.log().count(line) == 1, f"the log does not have this once: {line}")


def refuses(image, arguments, message, megabytes=256):
    with image.run(arguments, megabytes=megabytes) as container:
        status = container.end()
        expect(status != 0 and message in container.log(), f"{arguments}: status {status}")


main()
