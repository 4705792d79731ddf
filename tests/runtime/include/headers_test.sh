#!/bin/bash
# Every public header compiles by itself, with every warning an error, and so does a program that uses them. Exit code
# 77: this compiler is not on this machine. What needs libtorch is compiled by tests/interop.
#
# FOLDER is where the files lie that include one header each; it stays, since ccache knows a file by its path.
#
#   headers_test.sh c|c++|cuda COMPILER STANDARD RUNTIME PROGRAM FOLDER [LAUNCHER...]
set -u
language=$1 compiler=$2 standard=$3 runtime=$4 program=$5 folder=$6
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
extension='h*'
[ "$language" = c ] && extension=h
include=("$runtime"/include "$runtime"/training_kit/include)
mapfile -t headers < <(find "${include[@]}" -name "*.$extension" -printf '%P\n' | grep -v torch | sort)

bad=0
compile() {
  "${launcher[@]}" "$compiler" "${options[@]}" "-std=$standard" "${include[@]/#/-I}" -c "$1" -o "$folder/object.o" && return
  echo "$compiler -std=$standard does not compile $2"
  bad=1
}
for header in "${headers[@]}"; do
  # Included twice, which must be harmless.
  alone=$folder/${header//[.\/]/_}.${program##*.}
  printf '#include "%s"\n' "$header" "$header" >"$alone"
  compile "$alone" "$header"
done
compile "$program" "$program"
echo "${#headers[@]} headers"
[ "${#headers[@]}" -ge 1 ] && exit $bad
