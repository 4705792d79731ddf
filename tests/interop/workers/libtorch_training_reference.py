# SPDX-License-Identifier: BSD-3-Clause
"""libtorch_training_worker.cpp in Python, with PyTorch's own classes: libtorch_training_reference.py FOLDER SCENARIO...

Prints "SCENARIO RANK STEP LOSS" after each step of each scenario.
"""
import os
import sys

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

STEPS, BATCH, SAMPLES = 20, 8, 37
SCENARIOS = "sync_batch_norm", "grad_scaler", "grad_scaler_scale", "zero_adam", "zero_sgd", "sampler", "hook"


def make_net():
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(1352, 32), nn.BatchNorm1d(32, momentum=None), nn.ReLU(), nn.Linear(32, 10))


def loaded_net(folder):
    net = make_net()
    net.load_state_dict(load_file(f"{folder}/net.safetensors"))
    return net


def data_of(folder, rank):
    data = load_file(f"{folder}/data{rank}.safetensors")
    return data["images"], data["labels"]


def say(name, step, value):
    print(f"{name} {dist.get_rank()} {step} {value:.9g}", flush=True)


def sync_batch_norm(folder):
    """SyncBatchNorm refuses the CPU: a plain one sees the rows of all ranks, of which each rank has fewer."""
    net = loaded_net(folder).double()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    everyone = [data_of(folder, rank) for rank in range(dist.get_world_size())]
    sizes = [BATCH - 2 * rank for rank in range(len(everyone))]
    mine = dist.get_rank()
    for step in range(STEPS):
        optimizer.zero_grad()
        outputs = net(torch.cat([images[step][:size] for (images, _), size in zip(everyone, sizes)]).double())
        losses = [cross_entropy(output, labels[step][:size])
                  for output, (_, labels), size in zip(outputs.split(sizes), everyone, sizes)]
        (sum(losses) / len(losses)).backward()
        optimizer.step()
        net.eval()
        with torch.no_grad():
            tested = cross_entropy(net(everyone[mine][0][step].double()), everyone[mine][1][step])
        net.train()
        say("sync_batch_norm", step, losses[mine].item() + tested.item())


def train(name, folder, make_optimizer, hook=None, scaler=None):
    images, labels = data_of(folder, dist.get_rank())
    net = loaded_net(folder)
    model = DistributedDataParallel(net, bucket_cap_mb=0.0625)
    if hook:
        model.register_comm_hook(None, hook)
    optimizer = make_optimizer(net)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = cross_entropy(model(images[step]), labels[step])
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            overflows = step == 7 or (step == 3 and dist.get_rank() == 1)
            scaler.scale(loss * (1e38 if overflows else 1)).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            say("grad_scaler_scale", step, scaler.get_scale())
        if not scaler:
            scheduler.step()
        say(name, step, loss.item())


def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)


def zero_adam(net):
    groups = [{"params": list(net[0].parameters()) + list(net[1].parameters()), "lr": 0.01},
              {"params": [p for layer in net[5:] for p in layer.parameters()], "lr": 0.003, "weight_decay": 0.01}]
    return ZeroRedundancyOptimizer(groups, torch.optim.Adam, lr=0.005)


def zero_sgd(net):
    return ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.02, momentum=0.9)


def sampler(folder):
    """Rows come from a data loader of a data set that does not divide evenly."""
    images, labels = (tensor.flatten(0, 1) for tensor in data_of(folder, 0))
    net = loaded_net(folder)
    model = DistributedDataParallel(net)
    optimizer = sgd(net)
    order = DistributedSampler(range(SAMPLES), seed=5)
    loader = DataLoader(range(SAMPLES), batch_size=4, sampler=order)
    step = 0
    for epoch in range(3):
        order.set_epoch(epoch)
        for rows in loader:
            optimizer.zero_grad()
            loss = cross_entropy(model(images[rows]), labels[rows])
            loss.backward()
            optimizer.step()
            say("sampler", step, loss.item())
            step += 1


def halving_hook(state, bucket):
    """Sends half of each gradient, and doubles the average: the second stage of a hook."""
    gradients = bucket.buffer().div_(2 * dist.get_world_size())
    future = dist.all_reduce(gradients, async_op=True).get_future()
    return future.then(lambda done: done.value()[0].mul_(2))


def run(name, folder):
    if name == "sync_batch_norm":
        sync_batch_norm(folder)
    elif name == "grad_scaler":
        train(name, folder, sgd, scaler=torch.amp.GradScaler("cpu", growth_interval=4))
    elif name == "zero_adam":
        train(name, folder, zero_adam)
    elif name == "zero_sgd":
        train(name, folder, zero_sgd)
    elif name == "sampler":
        sampler(folder)
    elif name == "hook":
        train(name, folder, sgd, hook=halving_hook)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    for wanted in sys.argv[2:]:
        run(wanted, sys.argv[1])
    dist.barrier()
    # Skips the interpreter's shutdown, in which threads of PyTorch that still need the GIL sometimes abort the process.
    sys.stdout.flush()
    os._exit(0)
