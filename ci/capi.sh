#!/usr/bin/env bash
# Tests librelativist from C: installs it, finds it by pkg-config, and runs its tests natively,
# under valgrind and with sanitizers. Runs its examples, the commands of the book's page, and a
# short benchmark against liburcu. (A test of the crate checks that the header matches the source.)
# Installs missing tools from Debian's packages.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(gcc liburcu-dev pkg-config valgrind)
source ci/debian.sh
dpkg-query -W "${packages[@]}" >/dev/null 2>&1 || install_packages "${packages[@]}"
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
crates/capi/install.sh "$directory"
export PKG_CONFIG_PATH="$directory/lib/pkgconfig" LD_LIBRARY_PATH="$directory/lib"

# compile SOURCE shared|static FLAGS...: to $directory/NAME.
compile() {
  local libraries
  libraries=$(pkg-config --libs relativist)
  [ "$2" = shared ] || libraries=$(pkg-config --libs --static relativist | sed 's/-lrelativist/-l:librelativist.a/')
  # shellcheck disable=SC2046,SC2086
  gcc -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -pthread "crates/capi/$1" -o "$directory/$(basename "$1" .c)" \
    $(pkg-config --cflags relativist) $libraries "${@:3}"
}

for example in users unique; do
  compile "examples/$example.c" shared
  "$directory/$example"
done
ci/docs.py --only tutorial-c.md "$directory"
g++ -fsyntax-only -Wall -Wextra -Werror -x c++ "$directory/include/relativist.h"

compile tests/table.c shared
"$directory/table"
# Under valgrind only one thread runs at a time, so even few rounds take long. Valgrind does not see
# memory that is mapped by other means than malloc.
valgrind --quiet --error-exitcode=1 --leak-check=full --errors-for-leak-kinds=definite --show-leak-kinds=definite \
  "$directory/table" 100 without-misuse
compile tests/table.c static -fsanitize=address,undefined -fno-sanitize-recover=all
"$directory/table"

compile benches/lfht.c static -lurcu-memb -lurcu-cds
"$directory/lfht" 1000 2 1 0.02
