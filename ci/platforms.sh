#!/usr/bin/env bash
# Checks that RCU and the map compile for 64-bit Windows and macOS, and that they refuse a 32-bit
# target with a sentence that says why. Compiles std for each target from Debian's source of it.
set -euo pipefail
cd "$(dirname "$0")/.."

version=1.96
source ci/debian.sh
source ci/debian-rust.sh
debian_rust "$version" libllvm22 -- rustc-web "libstd-rust-web-$version" libstd-rust-web-dev rust-web-src
# Even a check of std for Windows makes import libraries.
debian x86_64-w64-mingw32-dlltool binutils-mingw-w64-x86-64
# Only unstable compilers build std. RUSTC_BOOTSTRAP makes a stable one accept that.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/platforms" CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 RUSTC_BOOTSTRAP=1

check() {
  cargo check --locked -Zbuild-std=std,panic_abort "${@/#/--target=}" --package relativist --package relativist-cache --all-features
}
check x86_64-pc-windows-gnu aarch64-apple-darwin

refusal=$(check i686-unknown-linux-gnu 2>&1) && { echo "platforms: a 32-bit target is not refused" >&2; exit 1; }
grep -q 'relativist.*needs a 64-bit target' <<<"$refusal" || {
  echo "$refusal"
  echo "platforms: a 32-bit target is refused without a sentence" >&2
  exit 1
}
