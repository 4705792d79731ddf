#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""C++ workers with libddp, started by the real torchrun: they join through its store and train over Gloo.

usage: test_torchrun.py COLLECTIVE_WORKER DDP_WORKER
"""
import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from forked_torchrun import TORCHRUN, ForkedPython  # noqa: E402
from jobs import run  # noqa: E402


def torchrun(*arguments):
    # --local-addr, because workers otherwise get the machine's name, which not every container resolves.
    out, _ = run(*TORCHRUN, "--nproc_per_node", "2", "--local-addr", "127.0.0.1", "--no-python", *arguments, patience=200,
                 popen=ForkedPython)
    return out


worker, ddp_worker = sys.argv[1:]
for arguments, what in {
    (worker, "collectives"): "all_reduce, broadcast, all_gather and averages of every type",
    (ddp_worker, "buckets"): "DistributedDataParallel",
    (worker, "store"): "the session's store",
}.items():
    torchrun("--standalone", *arguments)
    print(f"ok   --standalone: {what}")
ranks = [f"rank {rank} of 2, local rank {rank} of 2, restart 0" for rank in range(2)]
said = torchrun("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", worker, "who")
assert sorted(said.splitlines()) == ranks, said
print("ok   --rdzv-backend c10d: every rank is who torchrun says")
