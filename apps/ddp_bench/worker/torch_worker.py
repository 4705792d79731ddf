# SPDX-License-Identifier: BSD-3-Clause
"""`bench_worker FILE first|again` with PyTorch's Gloo."""
import os
import sys
import time


def stamp(what):
    with open(sys.argv[1], "a") as file:
        file.write(f"{os.environ['RANK']} {restart} {what} {os.getpid()} {time.clock_gettime_ns(time.CLOCK_REALTIME)}\n")


restart = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
stamp("started")
import torch  # noqa: E402  (its time is measured apart)
import torch.distributed as dist  # noqa: E402

stamp("imported")
dist.init_process_group("gloo")
stamp("joined")
rank, size = dist.get_rank(), dist.get_world_size()


def reduce():
    value = torch.tensor([rank + 1.0])
    dist.all_reduce(value)
    assert value.item() == size * (size + 1) / 2, value


reduce()
stamp("reduced")
while sys.argv[2] == "again" and restart == 0:
    reduce()
    time.sleep(0.005)  # in place of a step's forward and backward
dist.barrier()  # a Gloo rank fails if it still talks to a rank that has left
stamp("leaving")
dist.destroy_process_group()
os._exit(0)  # torch 2.15's Gloo sometimes aborts when the interpreter ends, under any launcher
