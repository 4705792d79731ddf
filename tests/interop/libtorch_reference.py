# SPDX-License-Identifier: BSD-3-Clause
"""libtorch_worker.cpp in Python, with PyTorch's own DistributedDataParallel: python libtorch_reference.py FOLDER SCENARIO...

Prints "SCENARIO RANK STEP LOSS" after each step of each.
"""
import contextlib
import os
import sys

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn
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


def train(name, folder, batch_norm=False, spare_layers=False, backwards=1, **options):
    rank = dist.get_rank()
    data = load_file(f"{folder}/data{rank}.safetensors")
    net = Net(batch_norm, spare_layers)
    net.load_state_dict(load_file(f"{folder}/weights.safetensors"), strict=False)
    model = DistributedDataParallel(net, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    row = 0

    def backward(step):
        nonlocal row
        with_sometimes = spare_layers and (rank + step) % 3 == 1
        loss = cross_entropy(model(data["images"][row], with_sometimes), data["labels"][row])
        loss.backward()
        row += 1
        return loss.item()

    for step in range(STEPS):
        optimizer.zero_grad()
        loss = 0
        for _ in range(1, backwards):
            with model.no_sync():
                loss += backward(step)
        loss += backward(step)
        optimizer.step()
        print(f"{name} {rank} {step} {loss:.9g}", flush=True)


SCENARIOS = {
    "plain": {},
    "no_sync": {"backwards": 2},
}

if __name__ == "__main__":
    dist.init_process_group("gloo")
    for wanted in sys.argv[2:]:
        train(wanted, sys.argv[1], **SCENARIOS[wanted])
    dist.barrier()
    # Not through the interpreter's end: threads of PyTorch's that still want the GIL then abort the process now and then.
    sys.stdout.flush()
    os._exit(0)
