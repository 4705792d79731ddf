# SPDX-License-Identifier: BSD-3-Clause
"""Adds a line with the CPU seconds of each import of PyTorch to the file $DDPRUN_TEST_IMPORTS. `scripts/test --times` has the
Python of the tests import this module as it starts; the tests' own workers know nothing of it.
"""
import os
import sys
import time


class _Torch:
    """A finder that measures how long the module torch runs when it is imported."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec
        spec = find_spec(name)
        run = spec.loader.exec_module

        def measured(module):
            begin = time.process_time()
            run(module)
            with open(os.environ["DDPRUN_TEST_IMPORTS"], "a") as file:
                file.write(f"{time.process_time() - begin:.2f}\n")

        spec.loader.exec_module = measured
        return spec


sys.meta_path.insert(0, _Torch())
