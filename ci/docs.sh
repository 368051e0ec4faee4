#!/usr/bin/env bash
# The book: its pictures are what the program draws, its shell commands do what it says, its links lead somewhere, and all statistics are in it.
# (`cargo test` compiles and runs its Rust snippets.) With --write, pictures and outputs are brought up to date instead.
set -euo pipefail
cd "$(dirname "$0")/.."

source ci/debian.sh
debian nc netcat-openbsd
debian openssl openssl
# What `cargo test` builds, and nothing else: so this takes no time after it.
cargo test --workspace --locked --no-run --quiet
built=$(realpath "${CARGO_TARGET_DIR:-target}")/debug

pictures=$(mktemp -d)
trap 'rm -rf "$pictures"' EXIT
if [ "${1:-}" = --write ]; then
  "$built/examples/pictures" docs/src/pictures
else
  "$built/examples/pictures" "$pictures"
  diff -r docs/src/pictures "$pictures" || { echo "docs: the pictures are not what is drawn now: ci/docs.sh --write" >&2; exit 1; }
fi
python3 ci/docs.py "$built" "$@"
if command -v mdbook >/dev/null; then
  mdbook build --dest-dir "$pictures/book" docs
fi
