#!/bin/bash
# Tests the portable build: portable_test.sh WHAT REPOSITORY ARGUMENT...
# Exit code 77: there is none.
set -u
what=$1 repository=$2
shift 2
build=$repository/build/portable
compiler=$repository/build/compiler/x86_64
files=("$build/bin/ddprun" "$build/bin/ddp_store" "$build"/lib/{libddp,libddp_training}.so.1)
for file in "${files[@]}"; do
  if [ ! -e "$file" ]; then
    echo "skipped: there is no $file: scripts/packaging/portable builds it"
    exit 77
  fi
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
complain() {
  echo "$1"
  bad=1
}

newest_glibc=2.28
longest=5200000
# What manylinux_2_28 lets a wheel expect of a machine; we need no more of it than glibc.
libraries='libddp\.so\.1|libc\.so\.6|libm\.so\.6|libdl\.so\.2|libpthread\.so\.0|librt\.so\.1|libutil\.so\.1|ld-linux-(x86-64\.so\.2|aarch64\.so\.1)'

# Reads the builds for both processors, if they are there.
symbols() {
  local file version newest function undefined
  for file in "${files[@]}" "$repository"/build/portable-aarch64/{bin/ddprun,bin/ddp_store,lib/libddp.so.1,lib/libddp_training.so.1}; do
    [ -e "$file" ] || continue
    undefined=$(readelf --dyn-syms -W "$file" | awk '$7 == "UND" && $8 != "" { print $8 }')
    for function in memcpy memmove memset memcmp strlen; do
      [[ $function == memcmp && $file == */libddp_training.so.1 ]] && continue  # it compares no memory
      grep -q "^$function@GLIBC" <<<"$undefined" ||
        complain "$file has a $function of its own, which is slower than libc's: what brings it (zig's compiler_rt)?"
    done
    newest=$newest_glibc
    for version in $(readelf -VW "$file" | grep -oE 'Name: [A-Z_a-z]+[0-9.]*' | sed 's/Name: //' | sort -uV); do
      case $version in
        GLIBC_*) newest=$(printf '%s\n' "$newest" "${version#GLIBC_}" | sort -V | tail -1) ;;
        LIBDDP_* | libddp*) ;;
        *) complain "$file needs $version" ;;
      esac
    done
    [ "$newest" = "$newest_glibc" ] || complain "$file needs glibc $newest"
    # What has no version, the linker did not find, but for libddp's functions, which libddp_training calls.
    grep -v -e @ -e '^ddp_' <<<"$undefined" && complain "$file needs these functions, which no library has"
    readelf -dW "$file" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -vxE "$libraries" && complain "$file needs these libraries"
  done
  return 0
}

size() {
  local file bytes
  for file in "${files[@]}"; do
    bytes=$(stat -c %s "$file")
    echo "$bytes $file"
    [ "$bytes" -le "$longest" ] || complain "$file has more than $longest bytes"
    readelf -SW "$file" | grep -qE ' \.(symtab|debug_info) ' && complain "$file is not stripped"
  done
  return 0
}

hardening() {
  local file
  "$repository/tests/layers/check_binaries.sh" "$build" || bad=1
  for file in "${files[@]}"; do
    readelf -hW "$file" | grep -q 'Type: *DYN' || complain "$file has fixed addresses"
    readelf -lW "$file" | grep -E 'GNU_STACK' | grep -q ' RW ' || complain "$file has a stack that can be executed"
    # Calls of functions whose address was taken land on this instruction only, where the processor checks it (CET).
    [ "$(objdump -d --no-show-raw-insn "$file" | grep -c endbr64)" -gt 200 ] || complain "$file has no marks for CET"
    grep -qaF "$repository" "$file" && complain "$file names $repository"
  done
  # All of our own sources are compiled so, and without this machine's headers of the C library.
  python3 - "$build/compile_commands.json" <<'PYTHON' || bad=1
import json, shlex, sys
wanted = ["-fstack-protector-strong", "-D_FORTIFY_SOURCE=3", "-fcf-protection=full"]
commands = json.load(open(sys.argv[1]))
failed, sources = False, 0
for command in commands:
    with open(command["file"]) as file:  # one that CMake has made includes those that are compiled as one
        sources += file.read().count('#include "') if "/Unity/unity_" in command["file"] else 1
    words = shlex.split(command["command"])
    missing = [word for word in wanted if word not in words]
    if missing or "/usr/include" in words:
        print(command["file"], "is compiled without", missing, "or with /usr/include")
        failed = True
print(sources, "sources")
sys.exit(failed or sources < 50)
PYTHON
}

# A program of one line, compiled with the options of each one's sources; and what it says is in each one too.
index() {
  local file options message='libc++ Hardening assertion __n < size() failed: vector[] index out of bounds'
  printf '%s\n' '#include <vector>' 'int main(int count, char**) {' \
    '  const std::vector<int> one(1);' '  return one[static_cast<unsigned>(count)];' '}' >"$work/index.cpp"
  python3 - "$build/compile_commands.json" >"$work/options" <<'PYTHON' || bad=1
import json, shlex, sys
kinds = set()
for command in json.load(open(sys.argv[1])):
    words = shlex.split(command["command"])
    if words[0].endswith("c++"):
        kinds.add(" ".join(sorted({word for word in words if word.startswith(("-O", "-D_LIBCPP", "-U_LIBCPP", "-std"))},
                                  key=words.index)))
print("\n".join(sorted(kinds)))
PYTHON
  while read -r options; do
    # Linked as all are, with -Os: zig would compile another libc++ for another optimisation.
    # shellcheck disable=SC2086
    "$compiler/c++" $options -c "$work/index.cpp" -o "$work/index.o" && "$compiler/c++" -Os "$work/index.o" -o "$work/index" ||
      complain "cannot compile with $options"
    (ulimit -c 0; exec "$work/index") >"$work/said" 2>&1
    [ $? -eq 134 ] || complain "an index out of range does not abort with $options"
    grep -qF "$message" "$work/said" || complain "an index out of range says, with $options: $(cat "$work/said")"
  done <"$work/options"
  [ "$(wc -l <"$work/options")" -ge 1 ] || complain "no options were found"
  for file in "${files[@]}"; do
    grep -qaF 'vector[] index out of bounds' "$file" || complain "$file does not check the index of a vector"
  done
}

job() {
  local without_call=$1 worker=$2 prefix said
  for prefix in "" "$without_call newer_than_4.18"; do
    said=$($prefix "$build/bin/ddprun" --nproc_per_node 2 "$worker" say=here 2>&1) || complain "code $?: $said"
    [ "$(grep -c here <<<"$said")" -eq 2 ] || complain "${prefix:-without a prefix}: two workers said: $said"
    said=$($prefix "$build/bin/ddprun" --nproc_per_node 2 "$worker" 1:exit=7 wait 2>&1)
    [ $? -eq 7 ] || complain "${prefix:-without a prefix}: not code 7: $said"
    grep -q 'rank 1' <<<"$said" || complain "${prefix:-without a prefix}: rank 1 is not named: $said"
  done
  # A shell stands in for ssh. The hosts get the program by its build id.
  said=$(HOME=$work "$build/bin/ddprun" --hosts a,b --launch-agent "sh -c 'eval \"\$2\"' sh" "$worker" say=here 2>&1) ||
    complain "code $? with --hosts: $said"
  [ "$(grep -c ': here' <<<"$said")" -eq 2 ] || complain "two hosts said: $said"
}

backend() {
  local program=$1 said
  said=$(LD_LIBRARY_PATH=$build/lib "$build/bin/ddprun" --nproc_per_node 2 "$program" 2>&1) || complain "code $?: $said"
  # Options of a session: their size, the backend, and zeros.
  said=$("$build/bin/ddprun" --nproc_per_node 2 --no-python python3 -c "
import ctypes
library = ctypes.CDLL('$build/lib/libddp.so.1')
library.ddp_error_last.restype = ctypes.c_char_p
options = (ctypes.c_void_p * 9)(ctypes.sizeof(ctypes.c_void_p) * 9, ctypes.cast(ctypes.c_char_p(b'gloo'), ctypes.c_void_p).value)
assert library.ddp_session_init(options, ctypes.byref(ctypes.c_void_p())) != 0
raise SystemExit(library.ddp_error_last().decode())" 2>&1) && complain "Gloo is there: $said"
  grep -q 'backend "gloo": .*comes without Gloo: use "ddp", "nccl" for GPUs, or build libddp from source' <<<"$said" ||
    complain "it says: $said"
}

$what "$@"
exit $bad
