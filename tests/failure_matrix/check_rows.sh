#!/bin/bash
# Checks the failure matrix beside this script against the tests: $1 is the repository.
# Prints what is missing on either side; exit code 1 if anything is.
#
#   every row of the issue is on the page, and has a test or says "Not here"
#   every test on the page exists, and carries its row as a tag
#   every tag of a row is on the page
set -u
cd "$1" || exit 2
page=tests/failure_matrix/README.md

rows=$(printf '%s\n' P{1..25} A{1..11} N{1..15} S{1..4})
# "P7 name of the test", once from the page and once from the sources; a TEST_CASE may be wrapped.
on_page=$(awk '/^### / { row = $2; sub(":", "", row) } /^\* / { print row " " substr($0, 3) }' "$page" | sort -u)
in_tests=$(find tests -name '*_test.cpp' -exec cat {} + | tr '\n' ' ' |
  grep -oE 'TEST_CASE\( *"[^"]*", *"[^"]*"' |
  sed -E 's/^TEST_CASE\( *"([^"]*)", *"([^"]*)"$/\2\t\1/' |
  awk -F'\t' '{ tags = $1; while (match(tags, /\[[PANS][0-9]+\]/)) {
    print substr(tags, RSTART + 1, RLENGTH - 2) " " $2; tags = substr(tags, RSTART + RLENGTH) } }' | sort -u)
bad=0
complain() {  # WHAT LINES
  [ -z "$2" ] && return
  printf '%s:\n%s\n' "$1" "$2"
  bad=1
}

complain "not a row of the page" "$(comm -23 <(sort <<<"$rows") <(sed -nE 's/^### ([A-Z][0-9]+):.*/\1/p' "$page" | sort))"
complain "on the page, but no such row" "$(comm -13 <(sort <<<"$rows") <(sed -nE 's/^### ([^:]*):.*/\1/p' "$page" | sort))"
complain "neither a test nor a reason why not" "$(awk '
  function done() { if (row != "" && !shown) print row }
  /^##/ { done(); row = ""; shown = 0 }
  /^### / { row = $2 }
  /^\* |Not here:/ { shown = 1 }
  END { done() }' "$page")"
complain "on the page, but no test has that name and tag" "$(comm -23 <(printf '%s\n' "$on_page") <(printf '%s\n' "$in_tests"))"
complain "a test has the tag, but is not in that row of the page" "$(comm -13 <(printf '%s\n' "$on_page") <(printf '%s\n' "$in_tests"))"
exit $bad
