#!/bin/bash
# Runs a test script with $DDPRUN_TEST_PYTHON, the Python that has PyTorch. If it is not set: exit
# code 77, skipped.
if [ -z "${DDPRUN_TEST_PYTHON:-}" ]; then
  echo "skipped: DDPRUN_TEST_PYTHON is not set (scripts/test sets it up)"
  exit 77
fi
# Only finds the packages: importing them would cost each test seconds.
if ! "$DDPRUN_TEST_PYTHON" -c 'import importlib.util as i; assert all(map(i.find_spec, ("torch", "numpy", "safetensors")))'
then
  echo "DDPRUN_TEST_PYTHON=$DDPRUN_TEST_PYTHON lacks torch, numpy or safetensors"
  exit 1
fi
exec "$DDPRUN_TEST_PYTHON" "$@"
