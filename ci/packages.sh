#!/usr/bin/env bash
# Builds the Debian packages of the server and of librelativist from the release build, and checks them with
# lintian. The build fails if the library's symbols are not those of debian/librelativist0.symbols. Installs
# the packages in a new, minimal system, tests them there (debian/tests), and removes them, after which
# nothing may be left. The packages are then in target/packages. Installs missing tools from Debian's packages.
set -euo pipefail
cd "$(dirname "$0")/.."

source ci/debian.sh
tools=(autopkgtest debhelper lintian mmdebstrap)
dpkg-query -W "${tools[@]}" >/dev/null 2>&1 || install_packages "${tools[@]}"

packages=$(realpath -m "${CARGO_TARGET_DIR:-target}")/packages
root=$packages/root

fail() {
  echo "packages: $*" >&2
  exit 1
}

versions() {
  local cargo debian
  cargo=$(cargo pkgid --package relativistd | sed 's/.*[#@]//')
  debian=$(dpkg-parsechangelog --show-field Version)
  [ "$cargo" = "$debian" ] || fail "debian/changelog has version $debian, Cargo.toml $cargo"
}

build() {
  DEB_DESTDIR=$packages dpkg-buildpackage --build=binary --no-sign --post-clean \
    --buildinfo-file="$packages/relativist.buildinfo" --buildinfo-option="-u$packages" \
    --changes-file="$packages/relativist.changes" --changes-option="-u$packages"
}

# The manual page describes the configuration files of the package, and the folders of its unit, and no others.
manual_page() {
  local content=$packages/content unit
  dpkg-deb --raw-extract "$packages"/relativistd_*.deb "$content"
  unit=$(find "$content" -name relativistd.service)
  diff <({
    cat "$content/DEBIAN/conffiles"
    sed -n 's|^ExecStart=.* --snapshot %S\(/[^ ]*\).*|/var/lib\1|p; s|^RuntimeDirectory=|/run/|p' "$unit"
  } | sort) <(gzip -dc "$content/usr/share/man/man1/relativistd.1.gz" | sed -n '/^\.SH FILES/,/^\.SH SEE/s/^\.I //p' | sort) ||
    fail "relativistd.1 does not describe the package's files (<), or describes others (>)"
  rm -rf "$content"
}

# A system with what the tests need, and nothing else.
minimal_system() {
  local repository release
  repository=$(debian_repository)
  release=$(source /etc/os-release && echo "$VERSION_CODENAME")
  TMPDIR=$packages as_root timeout 600 mmdebstrap --quiet --mode=root --variant=apt --format=directory \
    --include=apt-utils,binutils,gcc,libc6-dev,pkgconf,procps,python3,systemd "$release" "$root" \
    "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $repository $release main"
}

trap 'as_root rm -rf --one-file-system "$root"' EXIT
as_root rm -rf --one-file-system "$packages"
mkdir -p "$packages"
versions
build
lintian --allow-root --fail-on error,warning "$packages/relativist.changes"
manual_page
minimal_system
# With the namespace of processes all of its processes end, and with that of mounts all mounts.
as_root timeout --kill-after=30 900 unshare --mount --pid --fork --kill-child ci/packages_session.sh "$root" "$packages"
