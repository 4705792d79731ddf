# SPDX-License-Identifier: BSD-3-Clause
"""Tests what --preload promises, from outside ddprun.

    tests/preload/main.py build/dev/bin/ddprun                     all promises
    tests/preload/main.py build/dev/bin/ddprun "exit codes"        those that contain these words

DDPRUN_TEST_PYTHONS names the interpreters that run the workers, separated by colons; without it,
the interpreter of this script does. The exit code is 1 if a promise was not kept, and 77 if none
could be tested.
"""
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "interop"))  # for jobs
import faults  # noqa: E402, F401  (declares promises, as the next three)
import interpreter  # noqa: E402, F401
import refused  # noqa: E402, F401
import same  # noqa: E402, F401
from launch import Launch  # noqa: E402
from promises import run  # noqa: E402

if __name__ == "__main__":
    sys.exit(run(__doc__, Launch))
