#!/bin/bash
# Runs a test script with $DDPRUN_TEST_OLD_PYTHON, a Python with another release of PyTorch than
# $DDPRUN_TEST_PYTHON's. If it is not set: exit code 77, skipped.
if [ -z "${DDPRUN_TEST_OLD_PYTHON:-}" ]; then
  echo "skipped: DDPRUN_TEST_OLD_PYTHON is not set (scripts/test_torch_backend installs several releases and tests them)"
  exit 77
fi
exec "$DDPRUN_TEST_OLD_PYTHON" "$@"
