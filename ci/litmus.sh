#!/usr/bin/env bash
# Checks the litmus tests in proofs/litmus, and that each of them is named in the sources: see ci/litmus.py.
# Downloads herd7, which Debian 12 does not have, from Debian sid.
#
#   ci/litmus.sh               runs all
#   ci/litmus.sh --show TEST   prints a test and its twins, also as they are translated to AArch64
set -euo pipefail
cd "$(dirname "$0")/.."

source ci/debian.sh
debian python3 python3
herd=$(realpath -m "${CARGO_TARGET_DIR:-target}")/herd7
libraries=$herd/usr/lib/x86_64-linux-gnu
if [ ! -e "$herd" ]; then
  unpack_from sid "$herd" herdtools7 libc6 libgmp10 libgcc-s1
  find "$herd/usr/bin" -type f ! -name herd7 -delete
fi

[ $# -eq 0 ] || exec python3 ci/litmus.py "$@"
timeout 300 python3 ci/litmus.py "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" \
  "$herd/usr/bin/herd7" -set-libdir "$herd/usr/share/herdtools7/herd"
