# SPDX-License-Identifier: BSD-3-Clause
"""The list: rows are declared where their tests are, one decorator each, and run here.

    @row("4", "one worker by default")
    def _(launch): ...

CMake reads these lines too (CMakeLists.txt beside this), so number and promise stand on the line of the decorator.
A row raises an AssertionError if the promise is not kept, and Skip if it cannot be tried.
"""
import re

ROWS = {}


class Skip(Exception):
    """Says why."""


class Row:
    def __init__(self, number, promise, test, torchrun, torch):
        self.number, self.promise, self.test = number, promise, test
        self.torchrun = torchrun  # what the real torchrun does where it does not keep the promise
        self.torch = torch        # the workers import it


def row(number, promise, torchrun=None, torch=False):
    def declare(test):
        assert number not in ROWS, f"row {number} is there twice"
        ROWS[number] = Row(number, promise, test, torchrun, torch)
        return test
    return declare


def not_run(number, promise, why):
    """A row that no black box can be asked, or for which this list needs what it cannot bring."""
    def skip(_):
        raise Skip(why)
    row(number, promise)(skip)


def order(number):
    """"10b" between "10a" and "11"."""
    digits, letter = re.fullmatch(r"(\d+)(\w?)", number).groups()
    return int(digits), letter


def chosen(numbers):
    """All rows, or those named; "10" names 10a and 10b too."""
    for number in numbers:
        if not any(name == number or re.fullmatch(number + "[a-z]", name) for name in ROWS):
            raise KeyError(number)
    return [ROWS[name] for name in sorted(ROWS, key=order)
            if not numbers or name in numbers or name.rstrip("abcdefgh") in numbers]
