#!/bin/bash
# Doxygen has nothing to object to in the public headers: each public declaration is documented, each link leads
# somewhere. Exit code 77: there is no doxygen here.
#
#   reference_test.sh REPOSITORY OUTPUT_FOLDER
set -u
repository=$1 output=$2
if ! command -v doxygen >/dev/null; then
  echo "skipped: there is no doxygen on this machine"
  exit 77
fi
cd "$repository" || exit 1
rm -rf "$output"
mkdir -p "$output"
# The last value given counts.
(cat docs/Doxyfile && echo "OUTPUT_DIRECTORY = $output") | doxygen - || exit 1

# It may not have been asked about nothing.
grep -q 'ddp_all_reduce' "$output"/html/*.html
