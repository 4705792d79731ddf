# SPDX-License-Identifier: BSD-3-Clause
"""The list of promises. Each is declared with its test:

    @promise("exit codes are the same")
    def _(launch): ...

CMake reads these lines too (CMakeLists.txt in this folder), so the words must be on the decorator's
line. A test raises AssertionError if the promise is not kept, and Skip if it cannot be tested here. A program of such
tests ends with sys.exit(run(__doc__, Launch)).
"""
import argparse
import os
import sys
import traceback

PROMISES = {}


class Skip(Exception):
    """Says why a promise cannot be tested here."""


def promise(words):
    def declare(test):
        assert words not in PROMISES, f"'{words}' is there twice"
        PROMISES[words] = test
        return test
    return declare


def run(usage, make_subject):
    """Tests the promises that the command line names, with each interpreter of DDPRUN_TEST_PYTHONS. Prints a line for
    each and returns the exit code: 1 if one was not kept, 77 if none could be tested.

    make_subject(ddprun, python) makes the argument of a test, which has check_nothing_left() and close().
    """
    parser = argparse.ArgumentParser(description=usage, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ddprun", metavar="DDPRUN")
    parser.add_argument("words", metavar="PROMISE", nargs="*", help="words of promises to test; all without any")
    given = parser.parse_args()
    chosen = [words for words in PROMISES if not given.words or any(part in words for part in given.words)]
    if not chosen:
        parser.error("no promise has these words")
    results = []
    for python in filter(None, os.environ.get("DDPRUN_TEST_PYTHONS", sys.executable).split(":")):
        for words in chosen:
            result, why = _attempt(PROMISES[words], make_subject(os.path.abspath(given.ddprun), python))
            results.append(result)
            print(f"{python}: {words}: {result}" + (f": {why}" if why else ""), flush=True)
    return 1 if "FAILED" in results else 77 if set(results) == {"skipped"} else 0


def _attempt(test, subject):
    """Returns ("ok" | "FAILED" | "skipped", why)."""
    try:
        test(subject)
        subject.check_nothing_left()
        return "ok", ""
    except Skip as why:
        return "skipped", str(why)
    except AssertionError as error:
        return "FAILED", str(error) or traceback.format_exc()
    except Exception:
        return "FAILED", traceback.format_exc()
    finally:
        subject.close()
