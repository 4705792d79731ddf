# SPDX-License-Identifier: BSD-3-Clause
"""Joins through the given URL, and adds up all ranks. usage: sum.py [tcp://HOST:PORT | env://]"""
import os
import sys
import time

import torch
import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=sys.argv[1] if sys.argv[1:] else "env://", rank=rank, world_size=world)
ranks = torch.tensor([rank])
dist.all_reduce(ranks)
# In a single write, because all ranks of a launcher share one stdout.
os.write(1, f"the sum of {world} ranks is {ranks.item()}\n".encode())
dist.barrier()
dist.destroy_process_group()
time.sleep(0.3)  # torch 2.15's Gloo sometimes aborts if the interpreter ends right after; see interop/workers/gloo_worker.py
