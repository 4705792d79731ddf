#!/bin/bash
# The public headers compile with every warning an error, each of them alone or all together, and so does a program that
# uses them. Exit code 77: this compiler is not on this machine. torch.hpp needs libtorch: tests/interop compiles it.
#
# FOLDER is where the files lie that include the headers; it stays, since ccache knows a file by its path.
#
#   headers_test.sh alone|together c|c++|cuda COMPILER STANDARD INCLUDE_FOLDER PROGRAM FOLDER [LAUNCHER...]
set -u
how=$1 language=$2 compiler=$3 standard=$4 include=$5 program=$6 folder=$7
launcher=("${@:8}")
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
  mapfile -t -O "${#headers[@]}" headers < <(cd "$include/ddp" && printf '%s\n' *.hpp cuda/*.hpp | grep -vx torch.hpp)
fi
if [ "$language" = cuda ]; then
  mapfile -t -O "${#headers[@]}" headers < <(cd "$include/ddp" && printf '%s\n' *.cuh)
fi

bad=0
compile() {
  "${launcher[@]}" "$compiler" "${options[@]}" "-std=$standard" "-I$include" -c "$1" -o "$folder/object.o" && return
  echo "$compiler -std=$standard does not compile $2"
  bad=1
}
# compile_headers NAME HEADER...: in one file, each of them twice, which must be harmless.
compile_headers() {
  local file=$folder/${1//[.\/]/_}.${program##*.}
  printf '#include "ddp/%s"\n' "${@:2}" "${@:2}" >"$file"
  compile "$file" "$1"
}
case $how in
  alone) for header in "${headers[@]}"; do compile_headers "$header" "$header"; done ;;
  together) compile_headers all "${headers[@]}" ;;
esac
compile "$program" "$program"
echo "${#headers[@]} headers"
[ "${#headers[@]}" -ge 1 ] && exit $bad
