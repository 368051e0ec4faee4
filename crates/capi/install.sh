#!/usr/bin/env bash
# Builds librelativist and installs it: header, shared and static library, and what pkg-config needs.
# install.sh [PREFIX], by default /usr/local. For packages: the environment variable DESTDIR names a folder that is
# put before PREFIX when files are installed, and LIBDIR the folder of libraries below PREFIX, by default lib.
set -euo pipefail
destination=${DESTDIR:+$(realpath -m "$DESTDIR")}
cd "$(dirname "$0")"

prefix=$(realpath -m "${1:-/usr/local}")
libdir=${LIBDIR:-lib}
cargo build --quiet --release --locked --package relativist-capi
built=${CARGO_TARGET_DIR:-../../target}/release
version=$(cargo pkgid --package relativist-capi | sed 's/.*[#@]//')
interface=$(sed -n 's/^const INTERFACE: u32 = \([0-9]*\);$/\1/p' build.rs)

include="$destination$prefix/include"
libraries="$destination$prefix/$libdir"
install -d "$include" "$libraries/pkgconfig"
install -m 644 include/relativist.h "$include"
install -m 644 "$built/librelativist.a" "$libraries"
install -m 755 "$built/librelativist.so" "$libraries/librelativist.so.$version"
ln -sf "librelativist.so.$version" "$libraries/librelativist.so.$interface"
ln -sf "librelativist.so.$interface" "$libraries/librelativist.so"
sed "s|@prefix@|$prefix|; s|@libdir@|$libdir|; s|@version@|$version|" relativist.pc.in >"$libraries/pkgconfig/relativist.pc"
