#!/usr/bin/env bash
# Builds the Debian packages of the server and of librelativist from the release build, and checks
# them with lintian. The build fails if the library's symbols are not those of
# debian/librelativist0.symbols. Installs the packages in a new, minimal system, tests them there
# (debian/tests), and removes them, after which nothing may be left. The packages are then in
# target/packages. Installs missing tools from Debian's packages.
#
# `ci/packages.sh --inside ROOT PACKAGES` is the part that runs as root in namespaces of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

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

# The manual page describes the configuration files of the package, and the folders of its unit, and
# no others.
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

# --- Inside of the namespaces: $root is the minimal system.

inside() {
  chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

# All files, except what dpkg and its logs record about packages that were removed, and the earlier
# versions of the list of users. The user stays.
files() {
  (cd "$root" && find . -xdev \( -path ./proc -o -path ./dev -o -path ./var/lib/dpkg -o -path ./var/cache -o -path ./var/log -o -path ./tmp \) \
    -prune -o -print) | grep -vE '^\./etc/((passwd|group|shadow|gshadow)-|\.pwd\.lock)$' | sort
}

# Installs the packages $debs.
install() {
  cp "${debs[@]}" "$root/tmp"
  inside sh -c 'dpkg --install /tmp/*.deb && rm /tmp/*.deb'
}

is_enabled() {
  inside systemctl is-enabled "$1" || true
}

# Installs, tests and removes the packages in a minimal system.
session() {
  local debs file tree=$root.tree names=(librelativist-dev librelativist0 relativistd)
  mapfile -t debs < <(find "$1" -name '*.deb' ! -name '*-dbgsym_*' | sort)
  mount --make-rprivate /
  mount -t proc proc /proc
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"

  files >"$root.before"
  install
  [ "$(is_enabled relativistd.service) $(is_enabled relativistd.socket)" = "enabled disabled" ] || fail "a unit is not enabled as it should be"

  echo "=== changes of the configuration survive an upgrade, and all but the library a removal"
  for file in relativistd/relativistd.toml default/relativistd; do echo "# changed" >>"$root/etc/$file"; done
  inside install -d -o relativistd /var/lib/relativistd
  inside touch /var/lib/relativistd/items
  install
  inside dpkg --remove "${names[@]}"
  for file in etc/relativistd/relativistd.toml etc/default/relativistd; do
    [ "$(tail -n 1 "$root/$file")" = "# changed" ] || fail "/$file was replaced"
  done
  [ -e "$root/var/lib/relativistd/items" ] || fail "the snapshot was removed"
  inside dpkg --purge "${names[@]}"
  files | diff "$root.before" - || fail "packages that were purged left files (>), or removed some (<)"

  echo "=== the packages' own tests"
  mkdir "$tree"
  # Without debian/control, so that autopkgtest does not build the packages again.
  cp -r --parents debian/tests crates/capi/{examples,tests} "$tree"
  autopkgtest --quiet --timeout-test=300 --timeout-install=300 "${debs[@]}" "$tree" -- chroot "$root"
  rm -rf "$tree" "$root.before"
}

if [ "${1:-}" = --inside ]; then
  root=$2
  session "$3"
  exit
fi
source ci/debian.sh
tools=(autopkgtest debhelper lintian mmdebstrap)
dpkg-query -W "${tools[@]}" >/dev/null 2>&1 || install_packages "${tools[@]}"
packages=$(realpath -m "${CARGO_TARGET_DIR:-target}")/packages
root=$packages/root
trap 'as_root rm -rf --one-file-system "$root"' EXIT
as_root rm -rf --one-file-system "$packages"
mkdir -p "$packages"
versions
build
lintian --allow-root --fail-on error,warning "$packages/relativist.changes"
manual_page
minimal_system
# With the namespace of processes all of its processes end, and with that of mounts all mounts.
as_root timeout --kill-after=30 900 unshare --mount --pid --fork --kill-child ci/packages.sh --inside "$root" "$packages"
