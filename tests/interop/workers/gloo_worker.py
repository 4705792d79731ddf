# SPDX-License-Identifier: BSD-3-Clause
"""A PyTorch worker like an ordinary script: joins through env://, uses its groups, leaves.

With the argument `die`, rank 1 is killed by SIGKILL in the first round, after 20 all_reduces.
"""
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
restart = int(os.environ["TORCHELASTIC_RESTART_COUNT"])

for step in range(100):
    value = torch.full((1000,), float(rank))
    dist.all_reduce(value)
    assert value.eq(world * (world - 1) / 2).all(), value
    if sys.argv[1:] == ["die"] and restart == 0 and rank == 1 and step == 20:
        os.kill(os.getpid(), signal.SIGKILL)

pair = dist.new_group([0, 1])
if rank < 2:
    value = torch.tensor([rank + 1.0])
    dist.all_reduce(value, group=pair)
    assert value.item() == 3, value
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
model(torch.full((4, 8), float(rank))).sum().backward()
grad = next(model.parameters()).grad
assert torch.allclose(grad, torch.full_like(grad, 4 * (world - 1) / 2)), grad  # the average over all ranks

store = dist.distributed_c10d._get_default_store()
store.set(f"from {rank}", str(rank))
assert store.get(f"from {(rank + 1) % world}") == str((rank + 1) % world).encode()
store.add("arrived", 1)
dist.barrier()
assert store.add("arrived", 0) == world
store.wait([f"from {r}" for r in range(world)])

names = [None] * world
dist.all_gather_object(names, f"worker {rank}")
assert names == [f"worker {r}" for r in range(world)], names
dist.barrier()
# PyTorch up to 2.2 (seen with 2.0.1, under torchrun as well, and 2.2.2) may hang: destroying a group joins Gloo's threads
# with the GIL held, while one of them needs the GIL to free a collective's tensors. A moment later that is done.
time.sleep(0.3)
dist.destroy_process_group()
print(f"rank {rank} of {world} done after {restart} restarts", flush=True)
# torch 2.15's Gloo sometimes aborts at interpreter exit ("terminate called without an active exception"), also without
# any launcher; a moment of idling avoids it.
time.sleep(0.3)
