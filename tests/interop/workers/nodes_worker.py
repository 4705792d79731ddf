# SPDX-License-Identifier: BSD-3-Clause
"""An ordinary PyTorch training script: DDP over gloo, joins through env://, saves checkpoints and resumes from them.

usage: nodes_worker.py CHECKPOINT [HOST]    on that host it stops at step 50, unless it has resumed

Each step uses all samples, split over the ranks, so that the training is the same for any number of ranks. Rank 0 prints
the final loss, and the one of the same training without a group.
"""
import os
import sys
import time

import torch
import torch.distributed as dist

path = sys.argv[1]
stands_still = sys.argv[2:] == [os.uname().nodename]

assert dist.is_torchelastic_launched()
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
assert (rank, world) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
assert int(os.environ["GROUP_RANK"]) < int(os.environ["GROUP_WORLD_SIZE"])
seats = [None] * world
dist.all_gather_object(seats, (rank, os.uname().nodename, os.environ["GROUP_RANK"], os.environ["LOCAL_RANK"]))
assert [seat[0] for seat in seats] == list(range(world)), seats
assert len({seat[1:] for seat in seats}) == world, seats

torch.manual_seed(0)
samples = torch.randn(240, 8)
labels = torch.sin(samples.sum(dim=1, keepdim=True))


def network_and_optimizer():
    torch.manual_seed(1)
    network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    return network, torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)


def train(model, optimizer, inputs, wanted):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs), wanted).backward()
    optimizer.step()


def loss_of(network):
    with torch.no_grad():
        return torch.nn.functional.mse_loss(network(samples), labels).item()


network, optimizer = network_and_optimizer()
model = torch.nn.parallel.DistributedDataParallel(network)
first = 0
if os.path.exists(path):
    saved = torch.load(path)
    network.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["step"]

for step in range(first, 100):
    if stands_still and step == 50 and first == 0:
        print(f"rank {rank} stands still", flush=True)
        time.sleep(1000)
    train(model, optimizer, samples[rank::world], labels[rank::world])
    if rank == 0 and (step + 1) % 20 == 0:
        torch.save({"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, path + ".new")
        os.replace(path + ".new", path)

if rank == 0:
    print(f"final loss {loss_of(network):.5f}", flush=True)
    network, optimizer = network_and_optimizer()
    for step in range(100):
        train(network, optimizer, samples, labels)
    print(f"in one process {loss_of(network):.5f}", flush=True)
restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
print(f"rank {rank} of {world} done, from step {first}, after {restarts} restarts", flush=True)
dist.barrier()
time.sleep(0.3)  # see gloo_worker.py
dist.destroy_process_group()
time.sleep(0.3)
