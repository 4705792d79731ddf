#!/bin/bash
# Installs the wheel that lies in folder $1 in the way $2 (scripts/packaging/install_matrix). Exits with 77 if that way
# cannot be tried here: skipped.
set -u
report=$("$(dirname "$0")/../../../scripts/packaging/install_matrix" "$1"/ddprun-*.whl "$2") || { echo "$report"; exit 1; }
echo "$report"
case "$report" in "$2: skipped"*) exit 77 ;; esac
