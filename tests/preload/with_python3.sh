#!/bin/sh
# Runs a test script with this machine's Python. Without one, exits with 77: skipped.
if ! command -v python3 >/dev/null; then
  echo "skipped: there is no python3"
  exit 77
fi
exec python3 "$@"
