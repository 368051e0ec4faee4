# Sourced by the scripts that need Debian's packages.

# install_packages PACKAGE...: one script at a time, since apt-get fails while another one runs.
# (Packages may start daemons, which must not inherit the lock.)
install_packages() {
  local sudo
  sudo=$([ "$(id -u)" -eq 0 ] || echo sudo)
  mkdir -p "${CARGO_TARGET_DIR:-target}"
  (
    flock 9
    $sudo apt-get update -qq 9>&-
    $sudo apt-get install -y -qq "$@" >/dev/null 9>&-
  ) 9>"${CARGO_TARGET_DIR:-target}/packages.lock"
}

# debian COMMAND PACKAGE...: installs the packages unless the command or the file exists.
debian() {
  [ -e "$1" ] || command -v "$1" >/dev/null || install_packages "${@:2}"
}
