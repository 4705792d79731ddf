# SPDX-License-Identifier: BSD-3-Clause
"""A rank that runs the rounds of `ddp_bench collectives` (rounds.hpp) with torch's own Gloo, by the same rules: results
are checked first, then come blocks of 10 ms or three calls; a call takes as long as on the slowest rank.

usage: torch_collectives.py [--collectives NAME ...] [--sizes BYTES ...] [--seconds S]
"""
import argparse
import json
import math
import os
import time

import torch
import torch.distributed as dist

FACTORS = {"all_reduce": lambda n: 2 * (n - 1) / n, "broadcast": lambda n: 1,
           "all_gather": lambda n: (n - 1) / n, "reduce_scatter": lambda n: (n - 1) / n}  # for bus bandwidth
BLOCK_SECONDS, LEAST = 0.01, 3

parser = argparse.ArgumentParser()
parser.add_argument("--collectives", nargs="+", choices=FACTORS, default=["all_reduce"])
parser.add_argument("--sizes", type=int, nargs="+", default=[4 ** i for i in range(1, 14)])
parser.add_argument("--seconds", type=float, default=0.5)
options = parser.parse_args()

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()


def call_of(collective, count):
    """Returns the call, and a function that fills its buffers, calls once and returns whether the result is right."""
    part = count // ranks
    mine = slice(rank * part, (rank + 1) * part)
    values = torch.arange(count) % 97.0
    total = values * ranks + ranks * (ranks - 1) / 2
    whole, piece = torch.zeros(count), torch.zeros(part)
    call, given, filled, result, expected = {
        "all_reduce": (lambda: dist.all_reduce(whole), whole, values + rank, whole, total),
        "broadcast": (lambda: dist.broadcast(whole, 0), whole, values if rank == 0 else -values, whole, values),
        "all_gather": (lambda: dist.all_gather_into_tensor(whole, piece), piece, values[mine], whole, values),
        "reduce_scatter": (lambda: dist.reduce_scatter_tensor(piece, whole), whole, values + rank, piece, total[mine]),
    }[collective]

    def is_right():
        given.copy_(filled)
        call()
        right = torch.equal(result, expected)
        whole.zero_()
        piece.zero_()
        return right

    return call, is_right


def microseconds(call, times):
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        taken.append((time.perf_counter() - start) * 1e6)
    return taken


def find_pace(call):
    """Returns the calls in a block and the number of blocks, by rank 0's clock."""
    call()
    dist.barrier()
    one = max(1e-7, sum(microseconds(call, LEAST)) * 1e-6 / LEAST)
    calls = max(LEAST, math.floor(BLOCK_SECONDS / one))
    pace = torch.tensor([calls, max(LEAST, math.floor(options.seconds / (calls * one)))])
    dist.broadcast(pace, 0)
    return pace.tolist()


def run_block(call, calls):
    call()
    dist.barrier()
    slowest = torch.tensor(microseconds(call, calls))
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest


for collective in options.collectives:
    in_parts = collective in ("all_gather", "reduce_scatter")
    measured = set()
    for size in options.sizes:
        count = max(1, size // (4 * ranks)) * ranks if in_parts else max(1, size // 4)
        if count in measured:
            continue
        measured.add(count)
        call, is_right = call_of(collective, count)
        if not is_right():
            raise SystemExit(f"torch: {collective} of {4 * count} bytes, rank {rank}: the result is wrong")
        calls, rounds = find_pace(call)
        blocks = [run_block(call, calls) for _ in range(rounds)]
        times = torch.cat(blocks)
        median = times.median().item()
        if rank == 0:
            print(json.dumps({
                "contender": "torch", "collective": collective, "ranks": ranks, "bytes": 4 * count,
                "calls": len(times), "median_us": median, "p99_us": times.kthvalue(math.ceil(0.99 * len(times)))[0].item(),
                "bus_gb_s": FACTORS[collective](ranks) * 4 * count / median / 1e3,
                "round_us": [block.median().item() for block in blocks]}), flush=True)
dist.barrier()
dist.destroy_process_group()
os._exit(0)  # torch 2.15's Gloo sometimes aborts when the interpreter ends, under any launcher
