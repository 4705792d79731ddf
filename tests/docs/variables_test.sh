#!/bin/bash
# Checks that docs/library/failures.md has every environment variable that libddp alone reads (rendezvous/worker_contract.hpp).
#
#   variables_test.sh REPOSITORY
set -u
cd "$1" || exit 1
mapfile -t variables < <(sed -n '/---- Environment, read by libddp only/,/---- Store keys/p' rendezvous/worker_contract.hpp |
  grep -oE '\] = "[A-Z_]+"' | tr -d ']= "')
missing=0
for variable in "${variables[@]}"; do
  grep -q "^|.*\`$variable\`" docs/library/failures.md && continue
  echo "not in docs/library/failures.md: $variable"
  missing=1
done
echo "${#variables[@]} variables"
exit $((missing || ${#variables[@]} < 5))
