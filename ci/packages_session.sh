#!/usr/bin/env bash
# Installs, tests and removes the packages in a minimal system: packages_session.sh ROOT PACKAGES. packages.sh
# runs it as root in namespaces of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$1
mapfile -t packages < <(find "$2" -name '*.deb' ! -name '*-dbgsym_*' | sort)
names=(librelativist-dev librelativist0 relativistd)

fail() {
  echo "packages: $*" >&2
  exit 1
}

inside() {
  chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

# All files, except what dpkg and its logs record about packages that were removed, and the earlier versions
# of the list of users. The user stays.
files() {
  (cd "$root" && find . -xdev \( -path ./proc -o -path ./dev -o -path ./var/lib/dpkg -o -path ./var/cache -o -path ./var/log -o -path ./tmp \) \
    -prune -o -print) | grep -vE '^\./etc/((passwd|group|shadow|gshadow)-|\.pwd\.lock)$' | sort
}

install() {
  cp "${packages[@]}" "$root/tmp"
  inside sh -c 'dpkg --install /tmp/*.deb && rm /tmp/*.deb'
}

is_enabled() {
  inside systemctl is-enabled "$1" || true
}

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
tree=$root.tree
mkdir "$tree"
# Without debian/control, so that autopkgtest does not build the packages again.
cp -r --parents debian/tests crates/capi/{examples,tests} "$tree"
autopkgtest --quiet --timeout-test=300 --timeout-install=300 "${packages[@]}" "$tree" -- chroot "$root"
rm -rf "$tree" "$root.before"
