#!/bin/bash
# Checks the programs and libraries of the build tree $1, and those that are installed from it: they look for
# libraries in no folder that depends on where they are started, and are hardened against mistakes with memory. $2 is
# what they are built with: "sanitizers" check some functions themselves, "no optimisation" checks none. A portable build
# has no libddp_gloo.so.
# Prints each that is not so; the exit code is 1 if there is one.
set -u
build=$1 with=${2:-}
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
bad=0

complain() {
  echo "${1#"$build"/}: $2"
  bad=1
}

# An empty element of a RUNPATH is the working directory, and so is one that is not absolute.
check_path() {
  local file=$1 path element
  path=$(readelf -dW "$file" | sed -n 's/.*(R\(UN\)\?PATH).*\[\(.*\)\]/\2:/p')
  while IFS= read -r -d: element; do
    case "$element" in '$ORIGIN'* | /*) ;; *) complain "$file" "RUNPATH has the element \"$element\": $path" ;; esac
  done <<<"$path"
}

check_links() {
  local file=$1 dynamic
  dynamic=$(readelf -dW "$file")
  grep -q NEEDED <<<"$dynamic" || return 0
  grep -qE '\(FLAGS(_1)?\).*NOW' <<<"$dynamic" || complain "$file" "its functions are not bound at the start (-z now)"
  readelf -lW "$file" | grep -q GNU_RELRO || complain "$file" "its tables stay writable (-z relro)"
}

check_functions() {
  local file=$1 functions
  functions=$(readelf --dyn-syms -W "$file")
  # Portable builds have a function of their own for it; then it is seen where the canary is read.
  grep -q __stack_chk_fail <<<"$functions" || objdump -d "$file" | grep -qF '%fs:0x28' ||
    complain "$file" "it has no stack protector"
  case "$file" in *libddp_gloo.so) return ;; esac  # it calls no function of libc that could be checked
  [ -n "$with" ] || grep -vE '__stack_chk_fail' <<<"$functions" | grep -qE ' __[a-z]+_chk(@|$)' ||
    complain "$file" "no function of libc is checked (_FORTIFY_SOURCE)"
}

# Prints the programs and libraries below these folders, each followed by a NUL.
elf_files() {
  local file
  while IFS= read -r -d '' file; do
    [ "$(head -c 4 "$file" | tail -c 3)" = ELF ] && printf '%s\0' "$file"
  done < <(find "$@" -type f ! -name '*.a' -print0)
}

files=0
while IFS= read -r -d '' file; do
  files=$((files + 1))
  check_path "$file"
  check_links "$file"
done < <(elf_files "$build/bin" "$build/lib")
expected=(ddprun ddp_store libddp.so libddp_training.so)
grep -q '^DDPRUN_GLOO:BOOL=OFF' "$build/CMakeCache.txt" || expected+=(libddp_gloo.so)
if [ "$files" -lt "${#expected[@]}" ]; then
  echo "there are only $files programs and libraries in $build"
  exit 1
fi
for component in Unspecified libddp; do
  cmake --install "$build" --prefix "$prefix" --component "$component" >/dev/null || exit 1
done
installed=0
while IFS= read -r -d '' file; do
  installed=$((installed + 1))
  check_path "$file"
  check_links "$file"
  check_functions "$file"
done < <(elf_files "$prefix")
if [ "$installed" -ne "${#expected[@]}" ]; then
  echo "installed are $installed programs and libraries, not ${expected[*]}"
  exit 1
fi
echo "$files of the build tree, $installed installed"
exit $bad
