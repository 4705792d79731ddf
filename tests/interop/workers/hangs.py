# SPDX-License-Identifier: BSD-3-Clause
"""A job that hangs: rank 2 sleeps in load(), and the others wait for it in an all_reduce."""
import threading
import time

import torch
import torch.distributed as dist


def load():
    time.sleep(1000)


def step(values, number):
    if number == 5 and dist.get_rank() == 2:
        load()
    dist.all_reduce(values)


def prefetch():
    time.sleep(1000)


dist.init_process_group("gloo")
threading.Thread(target=prefetch, name="prefetcher", daemon=True).start()
values = torch.ones(10)
for number in range(6):
    if number == 5:
        print("hangs", flush=True)
    step(values, number)
