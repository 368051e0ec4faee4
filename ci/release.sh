#!/usr/bin/env bash
# Checks what a release publishes, in a clean clone of the commit. With --dry-run, as in CI, that is all; names
# of checks can follow. Otherwise it first refuses a commit that is not ready, and in the end prints the commands that publish.
# It publishes nothing itself.
#
# - packages: each published crate can be packaged, and built from its package. No dependency was yanked.
# - features: each combination of a crate's features compiles without warnings (cargo-hack).
# - interfaces: the libraries are compatible with the last release (cargo-semver-checks), whose sources are in
#   ci/released.tar.xz. With --released it writes this file, from the commit.
# - dependencies: they have the licences, sources and versions that deny.toml allows (cargo-deny). Advisories
#   are in a database outside the registry, so only a release checks them.
# - bills: each crate has a bill of materials (cargo-cyclonedx), and the server's binary a list of
#   its dependencies (cargo-auditable). Both have what cargo links.
# - deb: the Debian packages (ci/packages.sh). Not in the clone, so that it need not build everything again.
#
# The first run builds the tools. The packages, the bills and the server are in target/publish/files.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:-}
checks=(packages features interfaces dependencies bills deb)
[ $# -lt 2 ] || checks=("${@:2}")
case $mode in
  "" | --dry-run | --released) ;;
  *) echo "usage: ci/release.sh [--dry-run [CHECK...] | --released]" >&2; exit 2 ;;
esac
crates=(relativist-rcu relativist relativist-store relativist-memcache relativistd) # in order of dependency
libraries=("${crates[@]:0:4}")
checkout=$PWD
builds=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$builds/publish
clone=$work/source
files=$work/files
released=$work/released
export CARGO_TARGET_DIR=$work/build CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0

fail() {
  echo "release: $*" >&2
  exit 1
}

# tool NAME VERSION: builds a tool, unless it exists. Optimization would take more time than it saves.
tool() {
  local root=$work/tools/$1-$2
  PATH=$root/bin:$PATH
  [ ! -x "$root/bin/$1" ] || return 0
  CARGO_TARGET_DIR=$work/tools/build CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off \
    CARGO_PROFILE_RELEASE_DEBUG=0 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
    cargo install --quiet --locked --root "$root" "$1@$2"
}

# Fails if the commit cannot be released.
ready() {
  local version
  version=$(cargo metadata --no-deps --format-version 1 | python3 ci/release.py version)
  [ -z "$(git status --porcelain)" ] || fail "the working tree has changes that are not committed"
  [ "$(cat "$builds/ci-passed" 2>/dev/null)" = "$(git rev-parse HEAD)" ] ||
    fail ".ci/run has not passed on $(git rev-parse --short HEAD) in this checkout"
  [ -z "$(git tag --list "v$version")" ] || fail "version $version was released: there is a tag v$version"
  grep -q "^## $version " CHANGELOG.md || fail "CHANGELOG.md has no section \"## $version (DATE)\""
}

# In a clone, a crate that needs a file which was not committed does not build.
clean_clone() {
  [ -z "$(git status --porcelain)" ] || echo "release: leaves out what is not committed" >&2
  rm -rf "$clone" "$files" "$CARGO_TARGET_DIR/package"
  mkdir -p "$files"
  git clone --quiet "$checkout" "$clone"
  cd "$clone"
  git log -1 --format='release: checks %h, %s'
}

# The sources of the libraries at this commit. (cargo needs all files that a Cargo.toml names.)
write_released() {
  git archive HEAD Cargo.toml crates/{rcu,map,cache,memcache,testing} ':(exclude)crates/*/tests' |
    xz -9 >ci/released.tar.xz
}

packages() {
  local log=$work/package.log
  # Cargo unpacks the packages into its home, and would build those of an earlier run: versions are the same.
  rm -rf "${CARGO_HOME:-$HOME/.cargo}"/registry/src/-*/relativist*
  cargo package --locked "${crates[@]/#/--package=}" 2>&1 | tee "$log"
  ! grep 'is yanked in' "$log" || fail "a dependency has been yanked"
  cp "$CARGO_TARGET_DIR"/package/*.crate "$files"
}

features() {
  cargo hack check --quiet --locked --feature-powerset "${crates[@]/#/--package=}"
}

# compatible CRATE...: fails if a public item of the last release is gone or has changed, and the version does not allow that.
compatible() {
  cargo semver-checks check-release "${@/#/--package=}" --baseline-root "$released"
}

interfaces() {
  rm -rf "$released"
  mkdir "$released"
  tar -xJf ci/released.tar.xz -C "$released"
  sed -i '/^default-members/d' "$released/Cargo.toml"
  compatible "${libraries[@]}" || fail "a library is not compatible with the last release (ci/released.tar.xz), so its version
must increase. If that interface was never released, write the file again: ci/release.sh --released"
  # This check must be able to fail: it reports a function that only the last release has.
  echo 'pub fn is_gone() {}' >>"$released/crates/rcu/src/lib.rs"
  ! compatible relativist-rcu >"$work/gone.log" 2>&1 || fail "cargo-semver-checks does not notice that a function is gone"
  grep -q 'function relativist_rcu::is_gone' "$work/gone.log" || { cat "$work/gone.log"; fail "cargo-semver-checks does not work"; }
}

dependencies() {
  cargo deny --locked check --hide-inclusion-graph licenses sources
  # The workbench, the papers and the checker are not published. Its competitors bring dependencies in several versions.
  cargo deny --locked --exclude relativist-bench --exclude relativist-papers --exclude relativist-check check --hide-inclusion-graph bans
  [ "$mode" = --dry-run ] || cargo deny --locked check --hide-inclusion-graph advisories
}

# Names and versions of what is linked into each crate, or runs while it is built.
linked() {
  local crate
  for crate in "${crates[@]}" relativist-capi; do
    cargo tree --quiet --locked --package "$crate" --edges normal,build --target "$triple" --prefix none \
      --format '{p}' >"$work/$crate.linked"
  done
}

# The tools for bills read `cargo metadata`. It also lists what only tests, models or crates that are not published need.
# So this removes them from the clone.
only_published() {
  cargo hack --workspace --remove-dev-deps
  sed -i "/^\[target.'cfg(relativist_/,/^\$/d" crates/*/Cargo.toml
  sed -i 's|^members = .*|members = ["crates/rcu", "crates/map", "crates/store", "crates/memcache", "crates/server", "crates/capi"]|' Cargo.toml
}

# Comes last, because it changes the clone.
bills() {
  local crate profile=release
  linked
  only_published
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
  export SOURCE_DATE_EPOCH
  cargo cyclonedx --quiet --format json --target "$triple"
  for crate in "${crates[@]}" relativist-capi; do
    # The paths in a bill contain this folder, which exists nowhere else.
    sed "s|$clone/||g" crates/*/"$crate.cdx.json" >"$files/$crate.cdx.json"
    python3 ci/release.py bill "$files/$crate.cdx.json" "$work/$crate.linked"
  done

  [ "$mode" != --dry-run ] || profile=dev
  cargo auditable build --quiet --profile "$profile" --package relativistd
  cp "$CARGO_TARGET_DIR/${profile/dev/debug}/relativistd" "$files"
  objcopy --dump-section .dep-v0="$work/list" "$files/relativistd" /dev/null
  python3 ci/release.py list "$work/list" "$work/relativistd.linked"
}

deb() {
  (cd "$checkout" && env --unset=RUSTFLAGS --unset=SOURCE_DATE_EPOCH CARGO_TARGET_DIR="$builds" ci/packages.sh)
  cp "$builds"/packages/*.deb "$files"
}

source ci/debian.sh
debian xz xz-utils
debian objcopy binutils
[ "$mode" != "" ] || ready
[ "$mode" != --released ] || { write_released; exit; }
# The tools share many dependencies, and so a folder of builds.
tool cargo-semver-checks 0.51.0
tool cargo-deny 0.20.2
tool cargo-cyclonedx 0.5.9
tool cargo-auditable 0.7.7
tool cargo-hack 0.6.46
rm -rf "$work/tools/build"
clean_clone
export RUSTFLAGS="-D warnings"
triple=$(rustc --version --verbose | sed -n 's/^host: //p')

for check in "${checks[@]}"; do
  start=$SECONDS
  "$check"
  echo "release: $check took $((SECONDS - start)) s"
done
[ "$mode" != "" ] || {
  echo "release: everything passed. To publish, run"
  printf '  cargo publish --locked --package %s\n' "${crates[@]}"
}
