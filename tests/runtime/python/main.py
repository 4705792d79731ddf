# SPDX-License-Identifier: BSD-3-Clause
"""Tests what the Python package ddprun promises, from outside it.

    tests/runtime/python/main.py build/dev/bin/ddprun                  all promises
    tests/runtime/python/main.py build/dev/bin/ddprun "find_binary"    those that contain these words

DDPRUN_TEST_PYTHONS names the interpreters that use the package, separated by colons; without it, the interpreter of
this script does. The exit code is 1 if a promise was not kept, and 77 if none could be tested.
"""
import argparse
import os
import sys
import traceback

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
from promises import PROMISES, Skip  # noqa: E402


def attempt(test, ddprun, python):
    """Returns ("ok" | "FAILED" | "skipped", why)."""
    callers = Callers(ddprun, python)
    try:
        test(callers)
        callers.check_nothing_left()
        return "ok", ""
    except Skip as why:
        return "skipped", str(why)
    except AssertionError as error:
        return "FAILED", str(error) or traceback.format_exc()
    except Exception:
        return "FAILED", traceback.format_exc()
    finally:
        callers.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ddprun", metavar="DDPRUN")
    parser.add_argument("words", metavar="PROMISE", nargs="*", help="words of promises to test; all without any")
    given = parser.parse_args()
    chosen = [words for words in PROMISES if not given.words or any(part in words for part in given.words)]
    if not chosen:
        parser.error("no promise has these words")
    results = []
    for python in filter(None, os.environ.get("DDPRUN_TEST_PYTHONS", sys.executable).split(":")):
        for words in chosen:
            result, why = attempt(PROMISES[words], os.path.abspath(given.ddprun), python)
            results.append(result)
            print(f"{python}: {words}: {result}" + (f": {why}" if why else ""), flush=True)
    return 1 if "FAILED" in results else 77 if set(results) == {"skipped"} else 0


if __name__ == "__main__":
    sys.exit(main())
