#!/usr/bin/env bash
# Formatting, lints, documentation without warnings, and the rules of the house that a script can check.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

# Layering (ARCHITECTURE.md): the engine never sees a socket, the codec does no I/O, the map knows no server.
fail() { echo "lint: $*" >&2; exit 1; }
! grep -rnE 'std::net|mio::|crate::net' crates/server/src/engine crates/server/src/engine.rs || fail "the engine must not see sockets"
! grep -rnE 'std::(net|io|fs|time)' crates/memcache/src || fail "the codec does no I/O and has no clock"
! cargo tree --package relativist --edges normal --prefix none | grep -E '^relativist(d|-memcache)' || fail "the map must not depend on the server"
# Loom takes the place of atomics only if they come from one module.
! grep -rnE 'std::sync::atomic|core::sync::atomic' crates/map/src crates/rcu/src --include='*.rs' \
  | grep -vE 'src/(sync|worker)\.rs' || fail "atomics come from the sync module"
! grep -rnE 'todo!|unimplemented!|dbg!\(' crates --include='*.rs' || fail "unfinished code"
