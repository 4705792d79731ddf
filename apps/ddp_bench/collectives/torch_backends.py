# SPDX-License-Identifier: BSD-3-Clause
"""A rank that times torch.distributed over the backend "ddp" and over Gloo, in blocks that alternate in one process.

usage: torch_backends.py [--sizes BYTES ...] [--seconds S] [--parameters MILLIONS ...]

Results are checked first. A call takes as long as on the slowest rank; its buffer is written before each. Python's
share of a call is what a group of one rank takes, which has nobody to talk to. Prints a line of JSON.
"""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ddprun.torch  # noqa: F401  for PyTorch before 2.14

parser = argparse.ArgumentParser()
parser.add_argument("--sizes", type=int, nargs="+", default=[4 ** i for i in range(1, 13)])
parser.add_argument("--seconds", type=float, default=0.5, help="for each size and backend")
parser.add_argument("--parameters", type=float, nargs="*", default=[0.4, 6], help="of the models, in millions")
options = parser.parse_args()

torch.set_num_threads(1)
dist.init_process_group("ddp")
rank, size = dist.get_rank(), dist.get_world_size()
groups = {"ddp": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
alone = [dist.new_group([member], backend="ddp") for member in range(size)][rank]
figures = {}


def slowest(times):
    """Returns the times of the slowest rank, call by call."""
    times = torch.tensor(times)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return times.tolist()


def block(call, prepare, calls):
    """Returns how long each call took, in seconds."""
    times = []
    for _ in range(calls):
        prepare()
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def alternate(contenders, seconds):
    """Runs blocks of the contenders in turn. Returns each one's median in seconds, of its slowest rank."""
    one = {name: statistics.median(block(*calls, 3)) for name, calls in contenders.items()}
    paces = torch.tensor([max(3, int(0.02 / max(1e-7, seconds_))) for seconds_ in one.values()])
    rounds = torch.tensor(max(3, int(seconds / max(0.02, 3 * max(one.values())))))
    dist.broadcast(paces, 0)
    dist.broadcast(rounds, 0)
    times = {name: [] for name in contenders}
    for _ in range(int(rounds)):
        for (name, calls), pace in zip(contenders.items(), paces.tolist()):
            dist.barrier()
            times[name] += slowest(block(*calls, pace))
    return {name: statistics.median(each) for name, each in times.items()}


def time_all_reduce(count):
    buffer, values = torch.zeros(count), torch.arange(count) % 97.0

    def contender(group):
        def fill():
            buffer.copy_(values)

        return (lambda: dist.all_reduce(buffer, group=group)), fill

    for name, group in groups.items():
        buffer.copy_(values + rank)
        dist.all_reduce(buffer, group=group)
        if not torch.equal(buffer, values * size + size * (size - 1) / 2):
            raise SystemExit(f"all_reduce of {4 * count} bytes over {name}, rank {rank}: the result is wrong")
    contenders = {name: contender(group) for name, group in groups.items()}
    contenders["alone"] = contender(alone)
    for name, seconds in alternate(contenders, options.seconds).items():
        figures[f"{name} {4 * count}"] = 1e6 * seconds


def time_step(millions):
    width = int((millions * 1e6 / 3) ** 0.5)

    def contender(group):
        torch.manual_seed(1)
        layers = [layer for _ in range(3) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
        model = DistributedDataParallel(torch.nn.Sequential(*layers), process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        x = torch.randn(8, width)

        def step():
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

        step()
        step()  # the reducer builds its buckets again after the first
        return step, lambda: None

    for name, seconds in alternate({name: contender(group) for name, group in groups.items()},
                                   4 * options.seconds).items():
        figures[f"{name} step {millions:g} M"] = 1e3 * seconds


for given in options.sizes:
    time_all_reduce(given // 4)
for given in options.parameters:
    time_step(given)
if rank == 0:
    print(json.dumps(figures), flush=True)
dist.barrier()
dist.destroy_process_group()
os._exit(0)  # torch 2.15's Gloo sometimes aborts when the interpreter ends, under any launcher
