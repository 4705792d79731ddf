# SPDX-License-Identifier: BSD-3-Clause
"""What workers wrote down of when they were how far: apps/ddp_bench/worker/stamps.h, and torch_worker.py beside it."""
import dataclasses
import os


@dataclasses.dataclass
class Stamp:
    rank: int
    restart: int
    what: str
    pid: int
    at: float  # seconds of CLOCK_REALTIME


def read(path):
    if not os.path.exists(path):
        return []
    with open(path) as file:
        fields = [line.split() for line in file if line.endswith("\n")]
    return [Stamp(int(rank), int(restart), what, int(pid), int(at) / 1e9) for rank, restart, what, pid, at in fields]


def of(stamps, what, restart=0):
    return [stamp for stamp in stamps if stamp.what == what and stamp.restart == restart]


def all_ranks(stamps, what, workers, restart=0):
    """Whether each rank of that round did it, once."""
    return sorted(stamp.rank for stamp in of(stamps, what, restart)) == list(range(workers))


# What a worker's stamps end. C++ has nothing to import.
PARTS = [("start", "started"), ("import", "imported"), ("init", "joined"), ("all_reduce", "reduced")]


def parts(stamps, begin, restart=0):
    """Milliseconds from `begin` until every rank was through with all_reduce, and of each part of that."""
    figures, before = {}, begin
    for part, stamp in PARTS:
        at = last(stamps, stamp, restart)
        if at is not None:
            figures[f"{part}_ms"] = 1e3 * (at - before)
            before = at
    return {"total_ms": 1e3 * (before - begin), **figures}


def last(stamps, what, restart=0):
    """When the last rank did it; None if nobody did."""
    return max((stamp.at for stamp in of(stamps, what, restart)), default=None)
