"""Functions that all sessions use."""

import os
import ssl
import sys

PORT = int(sys.argv[1])
# For a server that encrypts: MEMCACHED_CA names the file with its certificate.
TLS = ssl.create_default_context(cafile=os.environ["MEMCACHED_CA"]) if "MEMCACHED_CA" in os.environ else None
HOW = ", encrypted" if TLS else ""
BIG = bytes(range(256)) * 4000


def check(found, wanted):
    if found != wanted:
        raise SystemExit(f"found {found!r:.300}, wanted {wanted!r:.300}")
