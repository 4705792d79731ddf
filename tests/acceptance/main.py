# SPDX-License-Identifier: BSD-3-Clause
"""Checks from outside what users of torchrun rely on. Each row starts real processes.

    scripts/acceptance build/release/bin/ddprun          all rows
    scripts/acceptance build/release/bin/ddprun 12 31    these rows
    scripts/acceptance build/torch/bin/torchrun          the real torchrun

Rows that need PyTorch are skipped if the workers' Python has none. That is torchrun's own Python, or for ddprun the one
given by --python. "known" marks rows in which torchrun does not keep the promise, and says what it does instead. The
exit code is 1 if a row failed, 77 if all were skipped.
"""
import argparse
import os
import shutil
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "interop"))  # for jobs
import agent  # noqa: E402, F401  (declares rows, as the next three)
import cli  # noqa: E402, F401
import process  # noqa: E402, F401
import rendezvous  # noqa: E402, F401
from launcher import Launch, Launcher  # noqa: E402
from rows import Skip, chosen  # noqa: E402


def attempt(row, launcher):
    """Runs one row. Returns "ok", "FAILED", "known" or "skipped", and the reason."""
    if row.torch and not launcher.has_torch:
        return "skipped", f"{launcher.python} has no torch"
    launch = Launch(launcher)
    try:
        result, why = judge(row, launch)
        left = launch.left_over()
        if left and launcher.is_ddprun:
            result = "FAILED"
        return result, "; ".join(filter(None, (why, left and f"left over, and killed here: {left}")))
    finally:
        launch.close()


def judge(row, launch):
    try:
        row.test(launch)
        return "ok", ""
    except Skip as why:
        return "skipped", str(why)
    except Exception as error:
        why = str(error) if isinstance(error, AssertionError) and str(error) else traceback.format_exc()
        if row.torchrun and not launch.is_ddprun:
            return "known", f"torchrun: {row.torchrun} (here: {why.splitlines()[0]})"
        return "FAILED", why


def main():
    parser = argparse.ArgumentParser(prog="scripts/acceptance", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("launcher", metavar="LAUNCHER")
    parser.add_argument("rows", metavar="ROW", nargs="*", help="numbers; all if there are none")
    parser.add_argument("-j", "--jobs", type=int, default=2, metavar="N", help="rows at a time (default 2)")
    parser.add_argument("--python", default=sys.executable,
                        help="what ddprun runs workers with (default: DDPRUN_TEST_PYTHON, else python3)")
    options = parser.parse_args()
    try:
        rows = chosen(options.rows)
    except KeyError as unknown:
        parser.error(f"there is no row {unknown}")
    path = shutil.which(options.launcher)
    if not path:
        parser.error(f"{options.launcher} is no program that can be executed")
    launcher = Launcher(path, options.python)

    counts = {"ok": 0, "FAILED": 0, "known": 0, "skipped": 0}
    start = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as threads:
        for row, done in [(row, threads.submit(attempt, row, launcher)) for row in rows]:
            result, why = done.result()
            counts[result] += 1
            print(f"{row.number:>4}  {row.promise}: {result}" + (f": {why}" if why else ""), flush=True)
    print(f"{os.path.basename(launcher.path)}: {counts['ok']} ok, {counts['FAILED']} failed, {counts['known']} known, "
          f"{counts['skipped']} skipped, in {time.monotonic() - start:.0f} s")
    return 1 if counts["FAILED"] else 77 if counts["skipped"] == len(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
