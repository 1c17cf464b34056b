#!/usr/bin/env bash
# Installs the library and builds examples/cpp against it, as a user's project would.
# usage: install_test.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$2" --prefix "$work/fem" >/dev/null
cmake -G Ninja -S "$1/examples/cpp" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/fem" -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$work/build"
"$work/build/example"
