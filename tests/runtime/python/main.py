# SPDX-License-Identifier: BSD-3-Clause
"""Tests what the Python package ddprun promises, from outside it.

    tests/runtime/python/main.py build/dev/bin/ddprun                  all promises
    tests/runtime/python/main.py build/dev/bin/ddprun "find_binary"    those that contain these words

DDPRUN_TEST_PYTHONS names the interpreters that use the package, separated by colons; without it, the interpreter of
this script does. The exit code is 1 if a promise was not kept, and 77 if none could be tested.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(os.path.dirname(HERE))
sys.path += [os.path.join(TESTS, "interop"), os.path.join(TESTS, "preload")]  # for jobs and promises
import calls  # noqa: E402, F401  (declares promises, as the next five)
import ends  # noqa: E402, F401
import finds  # noqa: E402, F401
import hook  # noqa: E402, F401
import kubeflow  # noqa: E402, F401
import options  # noqa: E402, F401
from callers import Callers  # noqa: E402
from promises import run  # noqa: E402

if __name__ == "__main__":
    sys.exit(run(__doc__, Callers))
