# Sourced by the scripts that build with Debian's compilers, after ci/debian.sh.

# debian_rust VERSION TOOL... -- PACKAGE...: makes cargo use this version of Debian's rustc-web.
# Installs the tools and libraries that the script needs, and unpacks the packages of this version
# into a folder of their own, so that they neither replace another compiler nor exclude another
# version. Sets $toolchain to the folder.
debian_rust() {
  local version=$1 tools=() missing=() package
  shift
  while [ "$1" != -- ]; do tools+=("$1"); shift; done
  shift
  toolchain=$(realpath -m "${CARGO_TARGET_DIR:-target}/debian-rust-$version")
  for package in "$@"; do
    [ -e "$toolchain/unpacked/$package" ] || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] || {
    install_packages "${tools[@]}"
    alone unpack "$version" "$toolchain" "${missing[@]}"
  }
  export LD_LIBRARY_PATH="$toolchain/usr/lib/x86_64-linux-gnu"
  export RUSTC="$toolchain/usr/bin/rustc" RUSTDOC="$toolchain/usr/bin/rustdoc"
  "$RUSTC" --version
}

# unpack VERSION FOLDER PACKAGE...
unpack() {
  local version=$1 folder=$2 packages=("${@:3}")
  mkdir -p "$folder"/{downloads,unpacked}
  cd "$folder/downloads"
  timeout 300 apt-get -qq -o APT::Sandbox::User=root download "${packages[@]/%/=$version.*}"
  find . -name '*.deb' -exec dpkg-deb --extract {} "$folder" \; -delete
  cd "$folder/unpacked"
  touch "${packages[@]}"
}
