# SPDX-License-Identifier: BSD-3-Clause
"""`ddprun.keep` in real PyTorch: a job whose ranks are killed again and again ends with the bits of an undisturbed run.

usage: test_kept_memory.py DDPRUN ROOT CASE...    (CASE: of trainer.py; rules)

DDPRUN_KEPT_DEATHS: lives of each job that end with a kill (default 3).
"""
import os
import random
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(HERE))
from jobs import run  # noqa: E402

ddprun, root, *cases = sys.argv[1:]
DEATHS = int(os.environ.get("DDPRUN_KEPT_DEATHS", "3"))
RANKS = 3


def warm(case):
    """Returns the option that has each new process of the case start with what it would import."""
    modules = ["torch", "torch._dynamo", "ddprun.torch", "ddprun.recovery"]
    if case in ("zero", "lost", "rules"):
        modules.append("torch.distributed.optim")
    elif case.startswith("fsdp"):
        modules.append("torch.distributed.fsdp")
    return "--preload", ",".join(modules)


def job(script, *arguments, options=(), exit_code=0, ranks=RANKS):
    environment = {"PYTHON_EXEC": sys.executable, "OMP_NUM_THREADS": "1",
                   "PYTHONPATH": os.path.join(root, "runtime/python"),
                   "PATH": os.path.dirname(os.path.abspath(ddprun)) + os.pathsep + os.environ["PATH"]}
    out, err = run(ddprun, *options, "--nproc_per_node", ranks, os.path.join(HERE, script), *arguments,
                   environment=environment, patience=120 + 5 * DEATHS, exit_code=exit_code)
    assert "--preload" not in err, err  # a refused --preload is quoted
    return out, err


def ends(out):
    found = sorted(re.findall(r"^rank \d+ ends with .*$", out, re.MULTILINE))
    assert len(found) == RANKS, out
    return found


SHARDED = {"zero": "own and replicated", "fsdp1": "own", "fsdp1-views": "own", "fsdp2": "own"}


def is_killed_and_ends_as_undisturbed(case):
    steps, seed = 30 + 3 * DEATHS, random.randrange(10**6)
    expected = ends(job("trainer.py", case, steps, 0, seed, options=warm(case))[0])
    keep = "--keep-memory=shadow" if case == "torn" or case in SHARDED else "--keep-memory"
    options = (*warm(case), keep, "--max-restarts", 10 * DEATHS + 10)
    out, err = job("trainer.py", case, steps, DEATHS, seed, options=options)
    assert ends(out) == expected, f"seed {seed}: not {expected}\n{out}\n{err}"
    assert "differ from those of rank 0" not in err, err
    if case == "torn":
        went_on = re.findall(r"goes on after step (\d+): .* put together from the shadow", err)
        assert went_on == [str(step) for step in range(5, steps, 6)], err
    if case in SHARDED:
        assert f"what is kept is {SHARDED[case]}\n" in out, out
        assert "its checkpoint" not in err and "its own tensors from the shadow" in out, f"seed {seed}: {out}\n{err}"
    lives = len(re.findall(r"^rank 0 begins life", out, re.MULTILINE))
    went_on = re.findall(r"^rank 0 begins life \d+ at step (\d+): .+$", out, re.MULTILINE)
    print(f"{case}: {DEATHS} kills, seed {seed}: {lives} lives, of which {len(went_on)} went on at steps "
          f"{', '.join(went_on)}; it ends as an undisturbed run does")


def lost():
    """Without a shadow, a rank that dies within an update of its own part has the job start from its checkpoint."""
    steps, seed = 12, random.randrange(10**6)
    expected = ends(job("trainer.py", "lost", steps, 0, seed, options=warm("lost"))[0])
    out, err = job("trainer.py", "lost", steps, 1, seed,
                   options=(*warm("lost"), "--keep-memory", "--max-restarts", 3))
    assert ends(out) == expected, f"seed {seed}: not {expected}\n{out}\n{err}"
    assert "ranks have tensors that no other rank has" in err, err
    assert re.search(r"not used, so that the program starts from its checkpoint: rank \d was within update \d+, and no "
                     r"other rank has its own tensors \(--keep-memory=shadow would have a copy\)", err), err
    print("lost: without a shadow it starts from the checkpoint, and says why")


def rules():
    """What keep() refuses, what it takes back, and that without the option it keeps nothing."""
    out, err = job("rules.py", options=(*warm("rules"), "--keep-memory", "--max-restarts", 3), ranks=2)
    assert len(re.findall(r"^rank \d: all rules hold in life [01]$", out, re.MULTILINE)) == 4, f"{out}\n{err}"
    out, err = job("rules.py", "plain", options=(*warm("rules"), "--max-restarts", 3), ranks=2)
    assert out.count("a plain loop counts") == 2, f"{out}\n{err}"


for name in cases:
    {"rules": rules, "lost": lost}.get(name, lambda: is_killed_and_ends_as_undisturbed(name))()
