#!/bin/bash
# Every public header compiles by itself, with every warning an error, and so does a program that uses them. Exit code
# 77: this compiler is not on this machine. torch.hpp needs libtorch: tests/interop compiles it.
#
#   headers_test.sh c|c++|cuda COMPILER STANDARD INCLUDE_FOLDER PROGRAM
set -u
language=$1 compiler=$2 standard=$3 include=$4 program=$5
if ! command -v "$compiler" >/dev/null; then
  echo "skipped: there is no $compiler on this machine"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

warnings=(-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Werror)
case $language in
  c) command=("$compiler" -x c "${warnings[@]}" -fsyntax-only) ;;
  c++) command=("$compiler" -x c++ "${warnings[@]}" -fsyntax-only) ;;
  # -Wpedantic objects to what nvcc itself writes.
  cuda) command=("$compiler" -x cu -Werror all-warnings -Xcompiler -Wall,-Wextra,-Wconversion,-Wshadow,-Werror
                 -c -o "$work/object") ;;
esac
mapfile -t headers < <(cd "$include/ddp" && printf '%s\n' *.h c/*.h)
if [ "$language" != c ]; then
  mapfile -t -O "${#headers[@]}" headers < <(cd "$include/ddp" && printf '%s\n' *.hpp | grep -vx torch.hpp)
fi
if [ "$language" = cuda ]; then
  mapfile -t -O "${#headers[@]}" headers < <(cd "$include/ddp" && printf '%s\n' *.cuh)
fi

bad=0
compile() {
  "${command[@]}" "-std=$standard" "-I$include" "$1" && return
  echo "$compiler -std=$standard does not compile $2"
  bad=1
}
for header in "${headers[@]}"; do
  # Twice: it may be included again.
  printf '#include "ddp/%s"\n' "$header" "$header" >"$work/alone"
  compile "$work/alone" "$header"
done
compile "$program" "$program"
echo "${#headers[@]} headers"
[ "${#headers[@]}" -ge 1 ] && exit $bad
