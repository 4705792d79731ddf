# SPDX-License-Identifier: BSD-3-Clause
"""Tests what --preload promises, from outside ddprun.

    tests/preload/main.py build/dev/bin/ddprun                     all promises
    tests/preload/main.py build/dev/bin/ddprun "exit codes"        those that contain these words

DDPRUN_TEST_PYTHONS names the interpreters that run the workers, separated by colons; without it,
the interpreter of this script does. The exit code is 1 if a promise was not kept, and 77 if none
could be tested.
"""
import argparse
import os
import sys
import traceback

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "interop"))  # for jobs
import faults  # noqa: E402, F401  (declares promises, as the next three)
import interpreter  # noqa: E402, F401
import refused  # noqa: E402, F401
import same  # noqa: E402, F401
from launch import Launch, Python  # noqa: E402
from promises import PROMISES, Skip  # noqa: E402


def attempt(test, ddprun, python):
    """Returns ("ok" | "FAILED" | "skipped", why)."""
    launch = Launch(ddprun, python)
    try:
        test(launch)
        launch.check_none_left()
        return "ok", ""
    except Skip as why:
        return "skipped", str(why)
    except AssertionError as error:
        return "FAILED", str(error) or traceback.format_exc()
    except Exception:
        return "FAILED", traceback.format_exc()
    finally:
        launch.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ddprun", metavar="DDPRUN")
    parser.add_argument("words", metavar="PROMISE", nargs="*", help="words of promises to test; all without any")
    options = parser.parse_args()
    chosen = [words for words in PROMISES if not options.words or any(part in words for part in options.words)]
    if not chosen:
        parser.error("no promise has these words")
    results = []
    for path in filter(None, os.environ.get("DDPRUN_TEST_PYTHONS", sys.executable).split(":")):
        python = Python(path)
        for words in chosen:
            result, why = attempt(PROMISES[words], os.path.abspath(options.ddprun), python)
            results.append(result)
            print(f"Python {python.version_text}: {words}: {result}" + (f": {why}" if why else ""), flush=True)
    return 1 if "FAILED" in results else 77 if set(results) == {"skipped"} else 0


if __name__ == "__main__":
    sys.exit(main())
