# SPDX-License-Identifier: BSD-3-Clause
"""The list of promises: each is declared where its test is.

    @promise("exit codes are the same")
    def _(launch): ...

CMake reads these lines too (CMakeLists.txt beside this), so the words stand on the line of the decorator. A test raises
an AssertionError if the promise is not kept, and Skip if it cannot be tried.
"""

PROMISES = {}


class Skip(Exception):
    """Says why."""


def promise(words):
    def declare(test):
        assert words not in PROMISES, f"'{words}' is there twice"
        PROMISES[words] = test
        return test
    return declare
