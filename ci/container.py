"""Runs an OCI image rootless with crun, as container runtimes do: by a user without privileges,
with a read-only root, the system calls of io_uring forbidden, and a control group with a memory
limit. The caller is root, in namespaces of its own for mounts and for the network (`unshare --mount
--net`), which the containers share."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

from support import PATIENCE, fail, wait_until

# The user on the host, and in the container.
HOST_ID, CONTAINER_ID = 65534, 65532
GROUPS = Path("/sys/fs/cgroup")
# What docker's and containerd's default profiles refuse, as far as the server would use it.
FORBIDDEN = ["io_uring_setup", "io_uring_enter", "io_uring_register"]


def prepare():
    """Gives the network namespace a loopback interface, and hides from crun that both versions of
    control groups are mounted, for which it has no support."""
    with socket.socket() as any_socket:
        flags = struct.pack("16sh14x", b"lo", 1)  # IFF_UP
        fcntl.ioctl(any_socket, 0x8914, flags)  # SIOCSIFFLAGS
    if os.path.ismount(GROUPS / "unified"):
        subprocess.run(["umount", GROUPS / "unified"], check=True)


class Image:
    """An unpacked image."""

    def __init__(self, archive, folder):
        """Unpacks into a folder that every user can enter."""
        self.folder, self.root = Path(folder), Path(folder) / "rootfs"
        self.root.mkdir()
        with tarfile.open(archive) as files:
            read = lambda digest: files.extractfile(f"blobs/{digest.replace(':', '/')}")
            index = json.load(files.extractfile("index.json"))
            manifest = json.load(read(index["manifests"][0]["digest"]))
            self.config = json.load(read(manifest["config"]["digest"]))["config"]
            self.packed_bytes = sum(layer["size"] for layer in manifest["layers"])
            for layer in manifest["layers"]:
                with tarfile.open(fileobj=read(layer["digest"])) as content:
                    content.extractall(self.root)
        self.bytes = sum(file.lstat().st_size for file in self.root.rglob("*") if file.is_file())

    def make_mount_points(self, mounts):
        """Runtimes that run as root do this."""
        for source, place, _ in mounts:
            point = self.root / place.lstrip("/")
            point.parent.mkdir(parents=True, exist_ok=True)
            if Path(source).is_dir():
                point.mkdir(exist_ok=True)
            else:
                point.touch()

    def spec(self, arguments, mounts, forbidden):
        """The configuration for crun. `mounts` has the source, the destination and the mode of each
        folder."""
        uid, gid = map(int, self.config["User"].split(":"))
        ids = [{"containerID": CONTAINER_ID, "hostID": HOST_ID, "size": 1}]
        bind = lambda source, place, mode: {
            "destination": place,
            "type": "bind",
            "source": str(source),
            "options": ["rbind", mode, "nosuid", "nodev", "noexec"],
        }
        return {
            "ociVersion": "1.0.0",
            "process": {
                "user": {"uid": uid, "gid": gid},
                "args": self.config["Entrypoint"] + (self.config["Cmd"] if arguments is None else arguments),
                "env": self.config["Env"],
                "cwd": "/",
                "capabilities": {},
                "noNewPrivileges": True,
                "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 4096, "hard": 4096}],
            },
            "root": {"path": str(self.root), "readonly": True},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=64k"]},
                bind(GROUPS, "/sys/fs/cgroup", "ro"),
                *(bind(*mount) for mount in mounts),
            ],
            "linux": {
                "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount", "user")],
                "uidMappings": ids,
                "gidMappings": ids,
                "seccomp": {
                    "defaultAction": "SCMP_ACT_ALLOW",
                    "syscalls": [{"names": forbidden, "action": "SCMP_ACT_ERRNO", "errnoRet": 1}],
                },
            },
        }

    @contextlib.contextmanager
    def run(self, arguments=None, mounts=(), megabytes=256, forbidden=FORBIDDEN):
        """A running container, with the image's own arguments if there are no others. It is killed
        in the end."""
        place = self.folder / "bundle"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        self.make_mount_points([*mounts, (GROUPS, "/sys/fs/cgroup", "ro")])
        (place / "config.json").write_text(json.dumps(self.spec(arguments, mounts, forbidden)))
        (place / "state").mkdir()
        (place / "pid").touch()
        for name in ("state", "pid"):
            os.chown(place / name, HOST_ID, HOST_ID)
        with memory_group(megabytes) as group, open(place / "log", "w+b") as log:
            crun = ["crun", "--root", place / "state", "--cgroup-manager", "disabled", "run", "--pid-file", place / "pid"]
            user = [f"--reuid={HOST_ID}", f"--regid={HOST_ID}", "--clear-groups", "--inh-caps=-all"]
            process = subprocess.Popen(
                ["setpriv", *user, *crun, "--bundle", place, f"test-{os.getpid()}"],
                env={"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(place / "state")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=lambda: enter(group),
            )
            container = Container(process, place, group)
            try:
                yield container
            except BaseException:
                print(container.log(), file=sys.stderr)
                raise
            finally:
                container.kill()


class Container:
    def __init__(self, process, place, group):
        self.process, self.place, self.group = process, place, group

    @property
    def pid(self):
        """The process, as the host numbers it."""
        return int(wait_until("process of the container", (self.place / "pid").read_text))

    def log(self):
        return (self.place / "log").read_text()

    def end(self):
        """Waits for the end, and returns the status."""
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            fail("the container does not end")

    def stop(self):
        """Stops it as Kubernetes does, and returns the status."""
        os.kill(self.pid, signal.SIGTERM)
        return self.end()

    def kill(self):
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int((self.place / "pid").read_text()), signal.SIGKILL)
                self.process.wait(PATIENCE)
            self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def memory_group(megabytes, parent=None):
    """A control group with a limit, in either version, in the group `parent` or in that of all."""
    is_unified = (GROUPS / "cgroup.controllers").exists()
    parent = parent or (GROUPS if is_unified else GROUPS / "memory")
    group = parent / f"relativist-{os.getpid()}"
    try:
        if is_unified:
            (parent / "cgroup.subtree_control").write_text("+memory")
        group.mkdir()
        (group / ("memory.max" if is_unified else "memory.limit_in_bytes")).write_text(str(megabytes << 20))
    except OSError as error:
        fail(f"nothing was checked, because no control group with a memory limit can be made here: {error}")
    try:
        yield group
    finally:
        # The kernel may still be about to remove processes that have ended.
        wait_until("empty control group", lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def enter(group):
    """Moves this process into the control group."""
    (group / "cgroup.procs").write_text("0")


def peak(group):
    """The most memory in bytes that the control group has had."""
    names = ("memory.peak", "memory.max_usage_in_bytes")
    return next(int((group / name).read_text()) for name in names if (group / name).exists())


def kills(group):
    """How many processes of the control group were killed for lack of memory."""
    name = "memory.events" if (group / "memory.events").exists() else "memory.oom_control"
    return int(dict(line.split() for line in (group / name).read_text().splitlines())["oom_kill"])


def ask(path, port=9150):
    """The status and the text of a reply to an HTTP request; none if nothing listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return None
