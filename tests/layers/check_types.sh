#!/bin/bash
# Checks that no two files define a type of the same name in the same namespace: where both are in one program, the linker
# takes the functions of one for those of the other, and says nothing. $1 is the repository.
# Prints each type that is defined twice; the exit code is 1 if there is one.
set -u
cd "$1" || exit 2
mapfile -t files < <(find apps launcher rendezvous collectives runtime -name '*.[ch]pp')
awk '
  FNR == 1 { depth = 0 }
  /^namespace/ { spaces[++depth] = $2; next }
  /^}.*\/\/ namespace/ { --depth; next }
  /^(struct|class|union|enum|enum class) [A-Za-z_]+[ a-z_:A-Z0-9,<>]*\{/ {
    name = $0
    sub(/^(struct|class|union|enum class|enum) /, "", name)
    if (name ~ /^[A-Za-z_]+::/) next  # a header declares the type around it
    sub(/[^A-Za-z_0-9].*/, "", name)
    space = ""
    for (i = 1; i <= depth; ++i) {
      if (spaces[i] == "{") next  # no other file can name it
      space = space spaces[i] "::"
    }
    if (space == "") next  # only the backends, each of which is a library of its own
    ++types
    name = space name
    if (name in first && first[name] != FILENAME) {
      print name ": in " first[name] " and in " FILENAME
      twice = 1
    }
    first[name] = FILENAME
  }
  END {
    if (types < 500) { print "only " types + 0 " types were found"; twice = 1 }
    exit twice
  }' "${files[@]}"
