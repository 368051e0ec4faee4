# Sourced by the scripts that build with Debian's compilers, after ci/debian.sh.

# debian_rust VERSION LIBRARY... -- PACKAGE...: makes cargo use this version of Debian's rustc-web. Installs the
# libraries that it needs, and unpacks the packages of this version into a folder of their own, so that they
# neither replace another compiler nor exclude another version. Sets $toolchain to the folder.
debian_rust() {
  local version=$1 libraries=()
  shift
  while [ "$1" != -- ]; do libraries+=("$1"); shift; done
  shift
  toolchain=$(realpath -m "${CARGO_TARGET_DIR:-target}/debian-rust-$version")
  [ -e "$toolchain/complete" ] || {
    install_packages "${libraries[@]}"
    rm -rf "$toolchain"
    mkdir -p "$toolchain/packages"
    alone download "$version" "$toolchain/packages" "$@"
    find "$toolchain/packages" -name '*.deb' -exec dpkg-deb --extract {} "$toolchain" \;
    rm -r "$toolchain/packages"
    touch "$toolchain/complete"
  }
  export LD_LIBRARY_PATH="$toolchain/usr/lib/x86_64-linux-gnu"
  export RUSTC="$toolchain/usr/bin/rustc" RUSTDOC="$toolchain/usr/bin/rustdoc"
  "$RUSTC" --version
}

# download VERSION FOLDER PACKAGE...
download() {
  local packages=("${@:3}")
  cd "$2"
  timeout 300 apt-get -qq -o APT::Sandbox::User=root download "${packages[@]/%/=$1.*}"
}
