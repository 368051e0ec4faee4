#!/usr/bin/env bash
# Checks the book: that a program draws the same pictures, that shell commands print the given output, that
# links exist, and that it describes all statistics. (`cargo test` compiles and runs its Rust snippets.) With
# --write, updates pictures and outputs instead.
set -euo pipefail
cd "$(dirname "$0")/.."

source ci/debian.sh
debian nc netcat-openbsd
debian openssl openssl
# The same build as that of `cargo test`, so after `cargo test` there is nothing to build.
cargo test --workspace --locked --no-run --quiet
built=$(realpath "${CARGO_TARGET_DIR:-target}")/debug

pictures=$(mktemp -d)
trap 'rm -rf "$pictures"' EXIT
if [ "${1:-}" = --write ]; then
  "$built/examples/pictures" docs/src/pictures
else
  "$built/examples/pictures" "$pictures"
  diff -r docs/src/pictures "$pictures" || { echo "docs: the pictures are out of date: run ci/docs.sh --write" >&2; exit 1; }
fi
python3 ci/docs.py "$built" "$@"
if command -v mdbook >/dev/null; then
  mdbook build --dest-dir "$pictures/book" docs
fi
