#!/bin/bash
# Prints the failure matrix beside this script with the names of each row's tests, found by their tags. $1 is the repository.
# Exit code 1, with the rows on stderr, if a row has neither a test nor "Not here", or if a tag names no row.
set -eu -o pipefail
cd "$1"
# Lines "P7 name of the test"; a TEST_CASE may be wrapped.
tests=$(find tests -name '*_test.cpp' -exec cat {} + | tr '\n' ' ' |
  grep -oE 'TEST_CASE\( *"[^"]*", *"[^"]*"' |
  sed -E 's/^TEST_CASE\( *"([^"]*)", *"([^"]*)"$/\2\t\1/' |
  awk -F'\t' '{ tags = $1; while (match(tags, /\[[PANS][0-9]+\]/)) {
    print substr(tags, RSTART + 1, RLENGTH - 2) " " $2; tags = substr(tags, RSTART + RLENGTH) } }' | sort -u)
awk '
  function end_row() {  # prints the tests of the row that ends here
    if (row == "") return
    if (!(row in names) && !not_here) bad("row " row " has neither a test nor a reason why not")
    if (row in names) printf "%s\n", names[row]
    delete names[row]
    row = ""
  }
  function bad(words) { print words > "/dev/stderr"; failed = 1 }
  NR == FNR { row_of = $1; sub(/^[^ ]+ /, ""); names[row_of] = names[row_of] "* " $0 "\n"; next }
  /^##/ { end_row() }
  /^### / { row = $2; sub(":", "", row); not_here = 0 }
  /Not here:/ { not_here = 1 }
  row != "" && $0 == "" { next }
  { print }
  END { end_row(); for (row_of in names) bad("no row " row_of ", which these tests name:\n" names[row_of]); exit failed }
' <(printf '%s\n' "$tests") tests/failure_matrix/README.md
