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


def last(stamps, what, restart=0):
    """When the last rank did it; None if nobody did."""
    return max((stamp.at for stamp in of(stamps, what, restart)), default=None)
