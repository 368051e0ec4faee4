# Sourced by the scripts that need Debian's packages.

# install_packages PACKAGE...: one script at a time, since apt-get fails where another one runs. (Packages may start daemons, which must not
# inherit the lock.)
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

# debian COMMAND PACKAGE...: makes sure that there is the command, or the file.
debian() {
  [ -e "$1" ] || command -v "$1" >/dev/null || install_packages "${@:2}"
}
