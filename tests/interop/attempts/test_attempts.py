# SPDX-License-Identifier: BSD-3-Clause
"""`ddprun.attempts` in real PyTorch on one host; nodes_attempts_test.cpp has several.

usage: test_attempts.py DDPRUN ROOT PART...     (PART: rules, random, gloo)

DDPRUN_ATTEMPTS_DEATHS: rounds that end with a kill at an instant that is drawn (default 6).
"""
import os
import random
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(HERE))
from jobs import run  # noqa: E402

ddprun, root, *parts = sys.argv[1:]

DEATHS = int(os.environ.get("DDPRUN_ATTEMPTS_DEATHS", "6"))


def job(*words, ranks=2):
    environment = {"PYTHON_EXEC": sys.executable, "OMP_NUM_THREADS": "1",
                   "PYTHONPATH": os.path.join(root, "runtime/python"),
                   "PATH": os.path.dirname(os.path.abspath(ddprun)) + os.pathsep + os.environ["PATH"]}
    return run(ddprun, "--preload", "auto", "--nproc_per_node", ranks, *words, environment=environment,
               patience=120 + 5 * DEATHS)


def rules():
    script = os.path.join(HERE, "rules.py")
    for words in ((script,), ("--on-failure", "replace", "--max-restarts", 1, script)):
        out, err = job(*words)
        assert out.count("all rules hold") == 2, f"{out}\n{err}"


def ends(out):
    found = sorted(re.findall(r"^rank \d+ ends with \w+ \w+", out, re.MULTILINE))
    assert len(found) == 3, out
    return found


def at_random(backend="ddp"):
    script, seed, steps = os.path.join(HERE, "trainer.py"), random.randrange(10**6), 20 + 4 * DEATHS
    expected = ends(job(script, backend, steps, ranks=3)[0])
    out, err = job("--on-failure", "replace", "--max-restarts", 2 * DEATHS + 5, script, backend, steps,
                   f"kills={DEATHS}:{seed}", ranks=3)
    assert ends(out) == expected, f"seed {seed}: not {expected}\n{out}\n{err}"
    stay = len(re.findall("2 of 3 workers of this node stay", err))
    print(f"seed {seed}: {stay} ranks were killed and replaced; it ends as an undisturbed run does")
    assert stay > 0, err


for part in parts:
    {"rules": rules, "random": at_random, "gloo": lambda: at_random("gloo")}[part]()
