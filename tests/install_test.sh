#!/usr/bin/env bash
# Installs everything, moves it, and uses it as others would: the examples are built against it, and its command trains
# a model by a recipe's name in an empty folder.
# usage: install_test.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say() { printf '== %s\n' "$*"; }
die() { printf 'install_test: %s\n' "$*" >&2; exit 1; }

cmake --install "$2" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/fem"

say "the command"
fem=$work/fem/bin/fem
unset VIRTUAL_ENV FEM_PYTHON
mkdir "$work/empty"
cd "$work/empty"
[[ $("$fem" --version) =~ ^fem\ [0-9.]+\ \(torch\ 2\.13\.[^,]*,\ (generic|avx2|avx512)\)$ ]] || die "--version: $("$fem" --version)"
for i in $(seq 40); do echo "$i and $i are $((2 * i))."; done > sums.txt
"$fem" train 500k-fem-softmax --data sums.txt --out run --threads 1 --set train.steps=60 --set train.batch=4 \
  --set data.length=64 --set train.warmup_steps=5 --set model.n_layer=1 --set data.cache=cache > train.txt
grep -q "A sample:" train.txt || die "training did not end with a sample: $(cat train.txt)"
"$fem" train no-such-recipe --data sums.txt 2> error.txt && die "an unknown recipe was accepted"
grep -q "500k-fem-softmax" error.txt || die "the error does not name the recipes: $(cat error.txt)"
"$fem" report "$1/experiments/lm" --out lm.json > report.txt
grep -q "^Language models" report.txt || die "the claims of the experiments were not installed: $(cat report.txt)"
for file in "$1"/scripts/{report,html_page,inspect}*.{py,css,js,html}; do
  [ ! -f "$file" ] || [ -f "$work/fem/share/fem/scripts/$(basename "$file")" ] || die "$(basename "$file") of a page was not installed"
done
rm -rf "$work/without"
cp -r "$work/fem" "$work/without"
rm -r "$work/without/share"
"$work/without/bin/fem" train 500k-fem-softmax --data sums.txt 2> error.txt && die "recipes were found that were not installed"
grep -q "expected its recipes in $work/without/share/fem" error.txt || die "the error does not say where recipes belong: $(cat error.txt)"

say "examples/cpp"
build() { # EXAMPLE PROGRAM
  cmake -G Ninja -S "$tree/examples/$1" -B "$work/$1" -DCMAKE_PREFIX_PATH="$work/fem" -DCMAKE_BUILD_TYPE=Release >/dev/null
  cmake --build "$work/$1" --target "$2"
}
tree=$1
build cpp all
"$work/cpp/example"
"$work/cpp/ten_lines" || die "the lines of the README failed"

say "examples/text"
build text continue
"$work/text/continue" run "3 and" > text.txt || die "examples/text failed: $(cat text.txt)"
# Greedy, as long and with the same stop: the command's text.
"$fem" generate run --prompt "3 and" --temperature 0 --max-tokens 100 --stop $'\n' --quiet --threads 1 > command.txt
[ "$(head -c "$(wc -c < command.txt)" text.txt)" = "$(cat command.txt)" ] || die "expected the command's text $(cat command.txt), got $(cat text.txt)"
grep -q "nats, the likeliest" text.txt || die "expected a greedy text, got $(cat text.txt)"
"$work/text/continue" nowhere "3 and" 2> error.txt && die "a missing model was accepted"
grep -q "expected a folder that fem train made, but nowhere is none" error.txt || die "wrong error: $(cat error.txt)"
