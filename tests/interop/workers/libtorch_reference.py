# SPDX-License-Identifier: BSD-3-Clause
"""libtorch_worker.cpp in Python, with PyTorch's DistributedDataParallel: libtorch_reference.py FOLDER SCENARIO...

Prints "SCENARIO RANK STEP LOSS" after each step of each scenario.
"""
import os
import sys
from contextlib import nullcontext

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.functional import cross_entropy, max_pool2d, relu
from torch.nn.parallel import DistributedDataParallel

STEPS = 20


class Net(nn.Module):
    def __init__(self, batch_norm=False, spare_layers=False):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3)
        self.conv2 = nn.Conv2d(16, 32, 3)
        self.fc1 = nn.Linear(800, 64)
        self.fc2 = nn.Linear(64, 10)
        self.norm = nn.BatchNorm2d(16) if batch_norm else None
        if spare_layers:
            self.sometimes = nn.Linear(64, 10)
            self.never = nn.Linear(64, 10)

    def forward(self, images, with_sometimes=False):
        x = self.conv1(images)
        if self.norm is not None:
            x = self.norm(x)
        x = max_pool2d(relu(x), 2)
        x = max_pool2d(relu(self.conv2(x)), 2)
        x = relu(self.fc1(x.flatten(1)))
        return self.fc2(x) + self.sometimes(x) if with_sometimes else self.fc2(x)


def train(name, folder, batch_norm=False, spare_layers=False, frozen=False, channels_last=False, penalty=False,
          evaluate=False, fp16=False, backwards=1, averages_all=False, fewer_steps=0, divide_by_initial_world_size=True,
          **options):
    rank = dist.get_rank()
    data = load_file(f"{folder}/data{rank}.safetensors")
    net = Net(batch_norm, spare_layers)
    net.load_state_dict(load_file(f"{folder}/weights.safetensors"), strict=False)
    if frozen:
        net.conv1.weight.requires_grad_(False)
    if channels_last:
        for conv in net.conv1, net.conv2:
            conv.weight.data = conv.weight.data.contiguous(memory_format=torch.channels_last)
    model = DistributedDataParallel(net, **options)
    if fp16:
        model.register_comm_hook(None, fp16_compress_hook)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.02, momentum=0.9)
    row = 0

    def loss_of():
        with_sometimes = "find_unused_parameters" in options and (rank + row) % 3 == 1
        with_sometimes |= name == "static_accumulated" and rank == 0
        return cross_entropy(model(data["images"][row], with_sometimes), data["labels"][row])

    def backward():
        nonlocal row
        loss = loss_of()
        if penalty:
            gradient, = torch.autograd.grad([loss], [net.fc2.weight], create_graph=True)
            loss = loss + gradient.pow(2).sum()
        loss.backward()
        row += 1
        return loss.item()

    def all_steps():
        for step in range(STEPS - rank * fewer_steps):
            optimizer.zero_grad()
            loss = 0
            for _ in range(1, backwards):
                with nullcontext() if averages_all else model.no_sync():
                    loss += backward()
            loss += backward()
            optimizer.step()
            if evaluate:
                with torch.no_grad():
                    model.eval()
                    loss += loss_of().item()
                    if rank == 0:
                        loss_of()  # among such forwards only the first sends buffers
                    model.train()
            print(f"{name} {rank} {step} {loss:.9g}", flush=True)

    if fewer_steps:
        with model.join(divide_by_initial_world_size=divide_by_initial_world_size):
            all_steps()
        with torch.no_grad():  # all ranks end with the model of the last active rank
            loss = cross_entropy(net(data["images"][0]), data["labels"][0])
            print(f"{name} {rank} {STEPS} {loss.item():.9g}", flush=True)
    else:
        all_steps()


SCENARIOS = {
    "plain": {},
    "no_sync": {"backwards": 2},
    "buckets": {"bucket_cap_mb": 0.0625},
    "views": {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.0625},
    "views_no_sync": {"backwards": 2, "gradient_as_bucket_view": True, "bucket_cap_mb": 0.0625},
    "batch_norm": {"batch_norm": True, "evaluate": True},
    "local_buffers": {"batch_norm": True, "evaluate": True, "broadcast_buffers": False},
    "unused": {"spare_layers": True, "find_unused_parameters": True},
    "unused_views": {"spare_layers": True, "backwards": 2, "find_unused_parameters": True,
                     "gradient_as_bucket_view": True},
    "unused_accumulated": {"spare_layers": True, "backwards": 2, "averages_all": True, "find_unused_parameters": True},
    "unused_accumulated_views": {"spare_layers": True, "backwards": 2, "averages_all": True,
                                 "find_unused_parameters": True, "gradient_as_bucket_view": True},
    "static_graph": {"spare_layers": True, "static_graph": True},
    "static_accumulated": {"spare_layers": True, "backwards": 2, "averages_all": True, "static_graph": True,
                           "gradient_as_bucket_view": True, "bucket_cap_mb": 0.0625},
    "frozen": {"frozen": True},
    "channels_last": {"channels_last": True, "gradient_as_bucket_view": True, "bucket_cap_mb": 0.0625},
    "penalty": {"penalty": True},
    "fp16": {"fp16": True, "bucket_cap_mb": 0.0625},
    "uneven": {"batch_norm": True, "fewer_steps": 3},
    "uneven_active": {"fewer_steps": 3, "divide_by_initial_world_size": False},
}

if __name__ == "__main__":
    dist.init_process_group("gloo")
    for wanted in sys.argv[2:]:
        train(wanted, sys.argv[1], **SCENARIOS[wanted])
    dist.barrier()
    # Skips the interpreter's shutdown, in which threads of PyTorch that still need the GIL sometimes abort the process.
    sys.stdout.flush()
    os._exit(0)
