"""What the sessions have in common."""

import sys

PORT = int(sys.argv[1])
BIG = bytes(range(256)) * 4000


def check(found, wanted):
    if found != wanted:
        raise SystemExit(f"found {found!r:.300}, wanted {wanted!r:.300}")
