#!/usr/bin/python3
"""Runs unmodified clients against relativistd, in all protocols: five libraries for Python, two for
Node, one each for Go and Java, and libmemcached's conformance tool. Repeats this by TLS with the
clients that support it, with OpenSSL's tool, and with Python's standard library."""

import os
import re
import subprocess
import tempfile
from pathlib import Path

from support import ROOT, Server, build_server, debian, expect, install_clients, python_in

SESSIONS = ROOT / "ci/interop"
SPYMEMCACHED = "/usr/share/java/spymemcached.jar"
VERSION = "VERSION 1.6.45"


def main():
    folder = install_clients()
    debian("go", "golang-go")
    debian("memccapable", "libmemcached-tools")
    debian("openssl", "openssl")
    debian("javac", "default-jdk-headless")
    debian(SPYMEMCACHED, "libspymemcached-java")
    program = build_server()
    with Server(program, "-m", "64") as server:
        run_python(folder, server, "pymemcache", "pylibmc", "bmemcached", "aiomcache", "meta")
        run(["node", SESSIONS / "session.mjs", server.port, folder])
        run(["go", "run", ".", server.port], cwd=SESSIONS / "go")
        run(["java", "-cp", SPYMEMCACHED, SESSIONS / "java/Session.java", server.port])
        conforms(server)
    with tempfile.TemporaryDirectory() as files:
        logs_in(folder, program, Path(files))
        encrypts(folder, program, Path(files))


def run(command, **options):
    subprocess.run([str(word) for word in command], check=True, timeout=300, **options)


def run_python(folder, server, *sessions, login=(), environment=None):
    for session in sessions:
        command = [python_in(folder), SESSIONS / f"{session}_session.py", server.port, *login]
        run(command, env=os.environ | (environment or {}))


def conforms(server):
    """Runs memccapable. memcached 1.6.45 accepts any word after `delete KEY`, but the tool expects
    an error. So these two checks also fail on memcached itself."""
    expected = ["ascii delete", "ascii delete noreply"]
    command = ["memccapable", "-t", "60", "-h", "127.0.0.1", "-p", str(server.port)]
    output = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=120).stdout
    checks = re.findall(r"((?:ascii|binary) [a-z]+(?: [a-z]+)*) +(\[pass\])?", output)
    failed = [name for name, passed in checks if not passed]
    print(f"memccapable: {len(checks) - len(failed)} of {len(checks)} checks passed")
    expect(failed == expected, f"memccapable failed: {failed}; expected: {expected}")
    expect(len(checks) >= 54, "memccapable ran fewer checks than it has")


def logs_in(folder, program, files):
    users = files / "users"
    users.write_text("somebody:secret\n")
    with Server(program, "-S", environment={"MEMCACHED_SASL_PWDB": str(users)}) as server:
        run_python(folder, server, "bmemcached", login=["somebody", "secret"])


# --- TLS


def encrypts(folder, program, files):
    authority = make_certificates(files)
    options = f"ssl_chain_cert={files}/server.crt,ssl_key={files}/server.key,ssl_ca_cert={authority}"
    with Server(program, "-m", "64", "-Z", "-o", options) as server:
        environment = {"MEMCACHED_CA": str(authority)}
        run_python(folder, server, "pymemcache", "bmemcached", "aiomcache", "tls", environment=environment)
        for version in ("-tls1_2", "-tls1_3"):
            says(VERSION, s_client(server, authority, version, "-sess_out", files / "session"))
            says("\nReused", s_client(server, authority, version, "-sess_in", files / "session"))
        says("alert handshake failure", s_client(server, authority, "-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"))
    with Server(program, "-m", "64", "-Z", "-o", f"{options},ssl_verify_mode=2") as server:
        certificate = ["-cert", files / "client.crt", "-key", files / "client.key"]
        says(VERSION, s_client(server, authority, *certificate))
        says("alert certificate required", s_client(server, authority))
    print("openssl s_client: all as expected")


def make_certificates(files):
    """Makes an authority, and certificates by it for a server and for a client. Returns the
    authority's file."""
    authority, key = files / "authority.crt", files / "authority.key"
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", 2, "-subj", "/CN=authority", "-keyout", key, "-out", authority)
    purposes = {"server": "subjectAltName=DNS:localhost,IP:127.0.0.1", "client": "extendedKeyUsage=clientAuth"}
    for name, purpose in purposes.items():
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        request = openssl("req", *curve, "-subj", f"/CN={name}", "-keyout", files / f"{name}.key")
        extensions = files / f"{name}.extensions"
        extensions.write_text(f"{purpose}\n")
        by = ["-CA", authority, "-CAkey", key, "-extfile", extensions]
        openssl("x509", "-req", "-days", 2, *by, "-out", files / f"{name}.crt", text=request)
    return authority


def openssl(*arguments, text=None):
    command = ["openssl", *map(str, arguments)]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def s_client(server, authority, *flags):
    """Returns the server's replies through OpenSSL, which checks its certificate."""
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-CAfile", authority, "-verify_ip", "127.0.0.1"]
    command += ["-verify_return_error", "-ign_eof", *flags]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(command, input="version\r\nquit\r\n", text=True, timeout=60, **pipes).stdout


def says(wanted, output):
    expect(wanted in output, f'no "{wanted}" in what ends in: {output[-1000:]}')


main()
