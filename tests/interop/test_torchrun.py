#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""C++ workers of libddp started by the real torchrun: they join through its store and train over Gloo.

usage: test_torchrun.py COLLECTIVE_WORKER
"""
import os
import signal
import subprocess
import sys
import uuid

MARK = "DDPRUN_TEST_MARK"


def left_over(mark):
    """Processes that inherited the mark, wherever they went."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environment:
                if f"{MARK}={mark}".encode() in environment.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:
            pass  # gone, or not ours
    return found


def torchrun(*arguments):
    mark = uuid.uuid4().hex
    # --local-addr: else workers are told the machine's name, which not every container can resolve.
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--local-addr", "127.0.0.1",
               "--no-python", *arguments]
    try:
        job = subprocess.run(command, env={**os.environ, MARK: mark}, capture_output=True, text=True, timeout=200)
    except subprocess.TimeoutExpired:
        for pid in left_over(mark):
            os.kill(pid, signal.SIGKILL)
        raise
    said = f"exit code {job.returncode}\nstdout:\n{job.stdout}\nstderr:\n{job.stderr}"
    assert job.returncode == 0, said
    assert not left_over(mark), said
    return job.stdout


worker = sys.argv[1]
for arguments, what in {
    ("collectives",): "all_reduce, broadcast, all_gather and averages of every type",
    ("buckets",): "DistributedDataParallel",
    ("store",): "the session's store",
}.items():
    torchrun("--standalone", worker, *arguments)
    print(f"ok   --standalone: {what}")
ranks = [f"rank {rank} of 2, local rank {rank} of 2, restart 0" for rank in range(2)]
said = torchrun("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", worker, "who")
assert sorted(said.splitlines()) == ranks, said
print("ok   --rdzv-backend c10d: every rank is who torchrun says")
