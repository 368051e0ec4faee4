#!/usr/bin/env bash
# Builds the image of deploy/image with buildah, as an archive that docker, podman and registries accept
# (target/image/relativistd.tar), and runs it rootless with crun: without privileges, with a read-only root, with a
# memory limit, and with io_uring forbidden. With --build-only it only builds. The program is that of the release build,
# so an image for another architecture has to be built there. Installs missing tools from Debian's packages.
set -euo pipefail
cd "$(dirname "$0")/.."

source ci/debian.sh
debian buildah --no-install-recommends buildah
debian crun --no-install-recommends crun
debian strip binutils
cargo build --release --locked
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
image=$target/image
version=$(cargo pkgid --package relativistd | sed 's/.*[#@]//')

# Storage of its own, so that nothing is left in the caller's.
run_buildah() {
  as_root buildah --root "$image/storage" --runroot "$image/run" --storage-driver vfs "$@"
}
discard() {
  as_root rm -rf "$image"/{storage,run,root}
}

trap discard EXIT
discard
mkdir -p "$image/root/usr/bin" "$image/root/usr/share/doc/relativistd"
strip --strip-debug -o "$image/root/usr/bin/relativistd" "$target/release/relativistd"
# The libraries and the dynamic loader, by the paths at which the program looks for them.
for library in $(ldd "$target/release/relativistd" | grep -oE '/[^ ]+'); do
  install -D -m 755 "$(realpath "$library")" "$image/root$library"
done
cp LICENSE-* "$image/root/usr/share/doc/relativistd"
# Where runtimes mount file systems. Some cannot make these folders.
mkdir -p "$image/root"/{dev,etc,proc,sys}
chmod -R u=rwX,go=rX "$image/root"
# Without times the same files make the same image.
run_buildah bud --quiet --timestamp 0 --file deploy/image/Containerfile --tag "relativistd:$version" "$image" >/dev/null
rm -f "$image/relativistd.tar"
run_buildah push --quiet "relativistd:$version" "oci-archive:$image/relativistd.tar:relativistd:$version"
[ "${1:-}" = --build-only ] ||
  as_root unshare --mount --net python3 ci/image_session.py "$image/relativistd.tar"
