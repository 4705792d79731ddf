# SPDX-License-Identifier: BSD-3-Clause
"""`ddprun --hang-timeout`: names the rank and the line of each hang in cases.py, and none in jobs that are only slow.

usage: test_hangs.py DDPRUN ROOT hangs|healthy
"""
import json
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(HERE))
from jobs import run  # noqa: E402

ddprun, root, what = sys.argv[1:]
beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
if not os.path.exists(beside) and not shutil.which("py-spy"):
    print("skipped: there is no py-spy (pip install py-spy)")
    sys.exit(77)
RANKS = 4


def job(script, *options, patience):
    environment = {"PYTHON_EXEC": sys.executable, "OMP_NUM_THREADS": "1",
                   "PYTHONPATH": os.path.join(root, "runtime/python"),
                   "PATH": os.path.dirname(os.path.abspath(ddprun)) + os.pathsep + os.environ["PATH"]}
    return run(ddprun, *options, "--nproc_per_node", RANKS, "--log-format", "json", "--preload", "torch",
               os.path.join(HERE, script), environment=environment, patience=patience)


def hangs_in(err):
    lines = [json.loads(line) for line in err.splitlines() if line.startswith('{"time"')]
    return [line for line in lines if line["event"] == "hang"]


def each_hang_has_its_culprit():
    import cases
    lines = open(os.path.join(HERE, "cases.py")).read().splitlines()
    places = {line.split("# here: ")[1]: f"cases.py:{number}"
              for number, line in enumerate(lines, 1) if "  # here: " in line}
    _, err = job("cases.py", "--hang-timeout", 1, "--on-hang", "restart", "--max-restarts", len(cases.CASES),
                 patience=30 * len(cases.CASES))
    hangs = hangs_in(err)
    if any("ermission" in missing for hang in hangs for worker in hang["details"]["stacks"]
           for missing in worker["missing"]):
        print("skipped: no process may be traced here (ptrace_scope, or a container without SYS_PTRACE)")
        sys.exit(77)
    wrong = 0
    for hang in hangs:
        name, _, culprits, verdict = cases.CASES[hang["round"] - 1]
        expected = (list(culprits), verdict, places[name])
        found = tuple(hang["details"][key] for key in ("ranks", "verdict", "place"))
        wrong += found != expected
        print(f"{name}: " + ("" if found == expected else f"NOT {expected}: ") + hang["reason"].split("\n")[1].strip())
    assert wrong == 0 and len(hangs) == len(cases.CASES), f"{wrong} wrong, {len(hangs)} of {len(cases.CASES)}\n{err}"


def slow_is_not_a_hang():
    out, err = job("healthy.py", "--hang-timeout", 1, patience=120)
    assert not hangs_in(err), err
    assert out.count("all phases are over") == RANKS, out + err
    print(out)


each_hang_has_its_culprit() if what == "hangs" else slow_is_not_a_hang()
