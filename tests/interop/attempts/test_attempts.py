# SPDX-License-Identifier: BSD-3-Clause
"""`ddprun.attempts` in real PyTorch on one host; nodes_attempts_test.cpp has several.

usage: test_attempts.py DDPRUN ROOT rules
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(HERE))
from jobs import run  # noqa: E402

ddprun, root, part = sys.argv[1:]


def job(*words):
    environment = {"PYTHON_EXEC": sys.executable, "OMP_NUM_THREADS": "1",
                   "PYTHONPATH": os.path.join(root, "runtime/python"),
                   "PATH": os.path.dirname(os.path.abspath(ddprun)) + os.pathsep + os.environ["PATH"]}
    return run(ddprun, "--preload", "auto", "--nproc_per_node", 2, *words, environment=environment, patience=120)


def rules():
    script = os.path.join(HERE, "rules.py")
    for words in ((script,), ("--on-failure", "replace", "--max-restarts", 1, script)):
        out, err = job(*words)
        assert out.count("all rules hold") == 2, f"{out}\n{err}"


{"rules": rules}[part]()
