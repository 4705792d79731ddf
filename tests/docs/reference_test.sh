#!/bin/bash
# Doxygen has nothing to object to in the public headers: each public declaration is documented, each link leads
# somewhere, each first sentence can stand alone in a list. Exit code 77: there is no doxygen here.
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
# Doxygen uses the last value of an option.
(cat docs/Doxyfile && printf '%s\n' "OUTPUT_DIRECTORY = $output" "GENERATE_XML = YES") | doxygen - || exit 1

# Doxygen does not warn about the values of an enumeration.
undocumented=$(awk '/<enumvalue/ { said = 0 } /<para>/ { said = 1 }
  /<name>/ { name = $0 } /<\/enumvalue>/ && !said { print name }' "$output"/xml/*.xml)
if [ -n "$undocumented" ]; then
  printf 'not documented: %s\n' "$undocumented"
  exit 1
fi

# Lists show only the first sentence of a comment, so it must not refer to another one.
unclear=$(awk '/<briefdescription>/ { brief = 1 }
  brief && /<para>/ { text = $0; gsub(/<[^>]*>/, "", text); print name "\t" text; brief = 0 }
  /<\/briefdescription>/ { brief = 0 }
  /<name>|<compoundname>/ { name = $0; gsub(/ *<[^>]*>/, "", name) }' "$output"/xml/*.xml |
  grep -iP '\t *(another|the same|same|likewise|ditto|of|see|who|whoever|whose|it|its|they|those|and|or)\b' |
  grep -viP '\t *another (rank|store|group|process)\b')
if [ -n "$unclear" ]; then
  printf 'a first sentence that cannot stand alone: %s\n' "$unclear"
  exit 1
fi

# The headers were really read.
grep -q 'ddp_all_reduce' "$output"/html/*.html && grep -q '<enumvalue' "$output"/xml/*.xml
