# SPDX-License-Identifier: BSD-3-Clause
"""The list of rows. A decorator declares each row next to its test; this module runs it.

    @row("4", "one worker by default")
    def _(launch): ...

CMake reads these lines too (see CMakeLists.txt), so the number and the promise must be on the decorator's line.
A row raises an AssertionError if the promise is not kept, and Skip if it cannot be tested here.
"""
import re

ROWS = {}


class Skip(Exception):
    """Raised by a row that cannot be tested here, with the reason."""


class Row:
    def __init__(self, number, promise, test, torchrun, torch):
        self.number, self.promise, self.test = number, promise, test
        self.torchrun = torchrun  # what the real torchrun does, where it does not keep the promise
        self.torch = torch        # the workers import PyTorch


def row(number, promise, torchrun=None, torch=False):
    def declare(test):
        assert number not in ROWS, f"row {number} is there twice"
        ROWS[number] = Row(number, promise, test, torchrun, torch)
        return test
    return declare


def not_run(number, promise, why):
    """Declares a row that cannot be tested from outside, or that needs something this list cannot provide."""
    def skip(_):
        raise Skip(why)
    row(number, promise)(skip)


def order(number):
    """Sorts "10b" between "10a" and "11"."""
    digits, letter = re.fullmatch(r"(\d+)(\w?)", number).groups()
    return int(digits), letter


def chosen(numbers):
    """Returns all rows, or those given. "10" stands for 10a and 10b as well."""
    for number in numbers:
        if not any(name == number or re.fullmatch(number + "[a-z]", name) for name in ROWS):
            raise KeyError(number)
    return [ROWS[name] for name in sorted(ROWS, key=order)
            if not numbers or name in numbers or name.rstrip("abcdefgh") in numbers]
