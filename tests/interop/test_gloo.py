# SPDX-License-Identifier: BSD-3-Clause
"""Real PyTorch under ddprun: process groups form through its store, and again after a worker is killed.

usage: test_gloo.py DDPRUN [OPTION...]

DDPRUN_TEST_REPEATS: how often the killed job must recover (default 1).
"""
import os
import sys
import time

from jobs import run

ddprun, *options = sys.argv[1:]
worker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "workers", "gloo_worker.py")


def train(workers, restarts, *arguments):
    """Returns ddprun's stderr and the seconds the job took."""
    start = time.monotonic()
    out, err = run(ddprun, *options, "--nproc_per_node", workers, "--max-restarts", restarts, worker, *arguments,
                   environment={"PYTHON_EXEC": sys.executable}, patience=300)
    done = [f"rank {rank} of {workers} done after {restarts} restarts" for rank in range(workers)]
    said = sorted(line for line in out.splitlines() if line.startswith("rank "))  # PyTorch 2.8 and 2.10's Gloo prints lines too
    assert said == done and "--preload" not in err, f"stdout:\n{out}\nstderr:\n{err}"  # a refused --preload is quoted
    return err, time.monotonic() - start


if options:
    _, seconds = train(2, 0)
    print(f"2 workers: init, all_reduce, new_group, all_gather_object, barrier, destroy: {seconds:.1f} s")

repeats = int(os.environ.get("DDPRUN_TEST_REPEATS", "1"))
workers = 4 if options else 2  # without --preload each of them imports PyTorch
for attempt in range(repeats):
    err, seconds = train(workers, 1, "die")
    assert "restart 1 of 1: rank 1 on node" in err, err
    print(f"{workers} workers, rank 1 killed, recovered: {attempt + 1} of {repeats}, {seconds:.1f} s")
