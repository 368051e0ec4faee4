#!/usr/bin/env bash
# Builds librelativist and installs it: header, shared and static library, and what pkg-config needs. install.sh [PREFIX], by default /usr/local.
set -euo pipefail
cd "$(dirname "$0")"

prefix=$(realpath -m "${1:-/usr/local}")
cargo build --quiet --release --locked --package relativist-capi
built=${CARGO_TARGET_DIR:-../../target}/release
version=$(cargo pkgid --package relativist-capi | sed 's/.*[#@]//')

install -d "$prefix"/{include,lib/pkgconfig}
install -m 644 include/relativist.h "$prefix/include"
install -m 644 "$built/librelativist.a" "$prefix/lib"
install -m 755 "$built/librelativist.so" "$prefix/lib/librelativist.so.$version"
ln -sf "librelativist.so.$version" "$prefix/lib/librelativist.so.${version%%.*}"
ln -sf "librelativist.so.${version%%.*}" "$prefix/lib/librelativist.so"
sed "s|@prefix@|$prefix|; s|@version@|$version|" relativist.pc.in >"$prefix/lib/pkgconfig/relativist.pc"
