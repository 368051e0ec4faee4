#!/usr/bin/env bash
# librelativist as C programs see it: installed, found by pkg-config, its tests as they are, under valgrind and with sanitizers, its
# examples, the page of the book, and a smoke of the benchmark against liburcu. (That the header is the source's is a test of the crate.)
# Installs what it needs from Debian's packages if it is not there.
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
python3 ci/docs.py "$directory" --only tutorial-c.md
g++ -fsyntax-only -Wall -Wextra -Werror -x c++ "$directory/include/relativist.h"

compile tests/table.c shared
"$directory/table"
# Threads take turns under valgrind, so few rounds take long. What is mapped by other means than malloc is out of its sight.
valgrind --quiet --error-exitcode=1 --leak-check=full --errors-for-leak-kinds=definite --show-leak-kinds=definite \
  "$directory/table" 100 without-misuse
compile tests/table.c static -fsanitize=address,undefined -fno-sanitize-recover=all
"$directory/table"

compile benches/lfht.c static -lurcu-memb -lurcu-cds
"$directory/lfht" 1000 2 1 0.02
