# Sourced by the scripts that need Debian's packages.

# alone COMMAND...: runs a command that uses apt-get, which fails while another one runs. (Packages
# may start daemons, which must not inherit the lock.)
alone() {
  mkdir -p "${CARGO_TARGET_DIR:-target}"
  (
    flock 9
    "$@" 9>&-
  ) 9>"${CARGO_TARGET_DIR:-target}/packages.lock"
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# retry COMMAND...: tries three times, because a download may fail.
retry() {
  local pause
  for pause in 10 30; do
    ! "$@" || return 0
    echo "failed, and is repeated in $pause s: $*" >&2
    sleep "$pause"
  done
  "$@"
}

update_and_install() {
  # If an installation was interrupted, apt-get refuses all others until this.
  as_root dpkg --configure -a >/dev/null
  retry as_root apt-get update -qq
  retry as_root apt-get install -y -qq "$@" >/dev/null
}

# install_packages PACKAGE...: one script at a time.
install_packages() {
  alone update_and_install "$@"
}

# debian COMMAND PACKAGE...: installs the packages unless the command or the file exists.
debian() {
  [ -e "$1" ] || command -v "$1" >/dev/null || install_packages "${@:2}"
}

# Prints the address of Debian's packages. Before the first update apt-get does not know it.
debian_repository() {
  local find=(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' 'Component: main')
  [ -n "$("${find[@]}")" ] || alone as_root apt-get update -qq >/dev/null
  "${find[@]}" | sort -u | head -n1
}

# unpack_from SUITE FOLDER PACKAGE...: unpacks packages of another release of Debian into a new
# folder, for those that the installed release does not have, or not in a version that is new
# enough. Programs need that release's libraries, too, and that folder's dynamic loader. Nothing is
# installed. apt-get verifies the packages.
unpack_from() {
  local suite=$1 folder=$2 apt packages=("${@:3}") repository options file
  apt=$(mktemp -d)
  mkdir -p "$apt"/{lists,archives}/partial "$apt/root"
  touch "$apt/status"
  repository=$(debian_repository)
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $repository $suite main" >"$apt/sources.list"
  options=(-qq -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::Preferences=/dev/null
    -o Dir::Etc::PreferencesParts=/dev/null -o Dir::State::Lists="$apt/lists" -o Dir::State::Status="$apt/status"
    -o Dir::Cache="$apt" -o Acquire::Languages=none -o APT::Sandbox::User="$(id -un)")
  # Both, because the files may change in between.
  download() {
    apt-get "${options[@]}" update &&
      (cd "$apt/archives" && apt-get "${options[@]}" download "${packages[@]}")
  }
  retry download
  for file in "$apt"/archives/*.deb; do dpkg -x "$file" "$apt/root"; done
  rm -rf "$folder"
  mkdir -p "$(dirname "$folder")"
  mv "$apt/root" "$folder"
  rm -rf "$apt"
}
