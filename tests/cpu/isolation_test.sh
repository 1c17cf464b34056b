#!/usr/bin/env bash
# No object built for one instruction set may define a weak (shared) symbol: the linker could keep that copy for all.
# And the generic objects must not use wider registers than every x86-64 has.
# usage: isolation_test.sh BUILD_DIR
set -euo pipefail
count=0
for isa in generic avx2 avx512; do
  while IFS= read -r object; do
    count=$((count + 1))
    weak=$(nm -C "$object" | grep -E ' [WVu] ' || true)
    if [ -n "$weak" ]; then
      printf 'weak symbols in %s:\n%s\n' "$object" "$weak"
      exit 1
    fi
    if [ "$isa" = generic ] && objdump -d "$object" | grep -qE '%[yz]mm'; then
      echo "wide registers in $object"
      exit 1
    fi
  done < <(find "$1/src/CMakeFiles/fem_$isa.dir" -name '*.o')
done
if [ "$count" -lt 6 ]; then
  echo "found only $count kernel objects below $1/src/CMakeFiles: the check looked in the wrong place"
  exit 1
fi
echo "$count kernel objects keep to themselves"
