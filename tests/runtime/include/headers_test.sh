#!/bin/bash
# Every public header compiles by itself, with every warning an error, and so does a program that uses them. Exit code
# 77: this compiler is not on this machine. torch.hpp needs libtorch: tests/interop compiles it.
#
# FOLDER is where the files lie that include one header each; it stays, since ccache knows a file by its path.
#
#   headers_test.sh c|c++|cuda COMPILER STANDARD INCLUDE_FOLDER PROGRAM FOLDER [LAUNCHER...]
set -u
language=$1 compiler=$2 standard=$3 include=$4 program=$5 folder=$6
launcher=("${@:7}")
if ! command -v "$compiler" >/dev/null; then
  echo "skipped: there is no $compiler on this machine"
  exit 77
fi
mkdir -p "$folder"

warnings=(-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Werror)
case $language in
  c) options=(-x c "${warnings[@]}") ;;
  c++) options=(-x c++ "${warnings[@]}") ;;
  # -Wpedantic objects to what nvcc itself writes.
  cuda) options=(-x cu -Werror all-warnings -Xcompiler -Wall,-Wextra,-Wconversion,-Wshadow,-Werror) ;;
esac
mapfile -t headers < <(cd "$include/ddp" && printf '%s\n' *.h c/*.h)
if [ "$language" != c ]; then
  mapfile -t -O "${#headers[@]}" headers < <(cd "$include/ddp" && printf '%s\n' *.hpp | grep -vx torch.hpp)
fi

bad=0
compile() {
  "${launcher[@]}" "$compiler" "${options[@]}" "-std=$standard" "-I$include" -c "$1" -o "$folder/object.o" && return
  echo "$compiler -std=$standard does not compile $2"
  bad=1
}
for header in "${headers[@]}"; do
  # Included twice, which must be harmless.
  alone=$folder/${header//[.\/]/_}.${program##*.}
  printf '#include "ddp/%s"\n' "$header" "$header" >"$alone"
  compile "$alone" "$header"
done
compile "$program" "$program"
echo "${#headers[@]} headers"
[ "${#headers[@]}" -ge 1 ] && exit $bad
