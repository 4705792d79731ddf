# SPDX-License-Identifier: BSD-3-Clause
"""Real PyTorch under ddprun: process groups form through its store, and again after a worker was killed.

usage: test_gloo.py DDPRUN    (DDPRUN_TEST_REPEATS: how often the killed job must recover; default 2)
"""
import os
import subprocess
import sys
import time

ddprun = sys.argv[1]
worker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gloo_worker.py")
environment = dict(os.environ, PYTHON_EXEC=sys.executable)


def run(*arguments):
    start = time.monotonic()
    job = subprocess.run([ddprun, *arguments], env=environment, capture_output=True, text=True, timeout=300)
    return job, time.monotonic() - start


def expect(job, workers, restarts):
    done = [f"rank {rank} of {workers} done after {restarts} restarts" for rank in range(workers)]
    said = sorted(line for line in job.stdout.splitlines() if line.startswith("rank "))  # Gloo of 2.8 and 2.10 talks too
    if job.returncode != 0 or said != done:
        sys.exit(f"exit code {job.returncode}\nstdout:\n{job.stdout}\nstderr:\n{job.stderr}")


job, seconds = run("--nproc_per_node", "2", worker)
expect(job, 2, 0)
print(f"2 workers: init, all_reduce, new_group, all_gather_object, barrier, destroy: {seconds:.1f} s")

repeats = int(os.environ.get("DDPRUN_TEST_REPEATS", "2"))
for attempt in range(repeats):
    job, seconds = run("--nproc_per_node", "4", "--max-restarts", "1", worker, "die")
    expect(job, 4, 1)
    assert "restart 1 of 1: rank 1 on node" in job.stderr, job.stderr
    print(f"4 workers, rank 1 killed, recovered: {attempt + 1} of {repeats}, {seconds:.1f} s")
