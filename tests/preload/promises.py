# SPDX-License-Identifier: BSD-3-Clause
"""The list of promises. Each is declared with its test:

    @promise("exit codes are the same")
    def _(launch): ...

CMake reads these lines too (CMakeLists.txt in this folder), so the words must be on the decorator's
line. A test raises AssertionError if the promise is not kept, and Skip if it cannot be tested here.
"""

PROMISES = {}


class Skip(Exception):
    """Says why a promise cannot be tested here."""


def promise(words):
    def declare(test):
        assert words not in PROMISES, f"'{words}' is there twice"
        PROMISES[words] = test
        return test
    return declare
