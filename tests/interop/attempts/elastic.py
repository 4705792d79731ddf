# SPDX-License-Identifier: BSD-3-Clause
"""Trains a model in `ddprun.attempts` while its job has 3, then 2, then 3 ranks, and checks what all have trained on.

usage: elastic.py train BACKEND     in the job: says of each step which examples a rank takes, and where it updates
       elastic.py check FILE        afterwards, with all that the ranks have written

STANDS_STILL_WITH is a number of ranks: with those a process of this node stands still after an update and before what
follows it, until their number changes: there the weights have an update of the ranks that there were, and the step is
done again by those that there are.

The check trains once more, in one process: each step's gradient is the mean over the ranks that took part in its update.
"""
import hashlib
import os
import re
import sys
import time
from collections import Counter, defaultdict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

EXAMPLES, BATCH, LAST_STEPS = 101, 4, 24
WORLDS = [3, 2, 3]


class Numbers(Dataset):
    """Examples with their indices."""

    def __init__(self):
        generator = torch.Generator().manual_seed(5)
        self.x = torch.randn(EXAMPLES, 8, generator=generator)
        self.y = torch.randint(4, (EXAMPLES,), generator=generator)

    def __len__(self):
        return EXAMPLES

    def __getitem__(self, index):
        return self.x[index], self.y[index], index


class History:
    """The numbers of ranks that steps were done with, which all ranks know alike."""

    def __init__(self):
        self.worlds, self.since = [], 0

    def note(self, world, step):
        if not self.worlds or self.worlds[-1] != world:
            self.worlds, self.since = [*self.worlds, world], step

    def is_over(self, step):
        return self.worlds == WORLDS and step >= self.since + LAST_STEPS

    def state_dict(self):
        return {"worlds": list(self.worlds), "since": self.since}

    def load_state_dict(self, state):
        self.worlds, self.since = list(state["worlds"]), state["since"]


def model_and_optimizer():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)


def stand_still(attempt, history):
    from ddprun.recovery import _survival

    rank, world = dist.get_rank(), dist.get_world_size()
    is_here = str(world) == os.environ.get("STANDS_STILL_WITH") and history.worlds[-1:] == [world]
    if is_here and attempt.step == history.since + 5:
        print(f"rank {rank} of {world} stands still", flush=True)
        _survival.is_round_over(60)


def train(backend):
    import ddprun

    model, optimizer, scheduler = model_and_optimizer()
    data, history = Numbers(), History()
    for attempt in ddprun.attempts(model, optimizer, scheduler, extra=[history], backend=backend):
        with attempt:
            rank, world = dist.get_rank(), dist.get_world_size()
            began = torch.tensor([time.time_ns()])
            dist.broadcast(began, 0)
            name = int(began)

            def say_update(*_):
                if any(parameter.grad is not None for parameter in model.parameters()):  # else it is left out
                    print(f"rank {rank} of {world} updates {attempt.step} in {name}", flush=True)

            hook = optimizer.register_step_pre_hook(say_update)
            parallel = DistributedDataParallel(model)
            loader = DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data, shuffle=True, seed=3))
            print(f"rank {rank} of {world} begins at step {attempt.step}: {attempt.recovered}", flush=True)
            run_epochs(attempt, parallel, loader, optimizer, scheduler, history, name)
            hook.remove()
    state = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:16]
    print(f"rank {rank} ends with {state} after {attempt.step} steps", flush=True)
    if rank == 0:
        print("weights", *[value.hex() for p in model.parameters() for value in p.flatten().tolist()], flush=True)


def run_epochs(attempt, parallel, loader, optimizer, scheduler, history, name):
    rank, world = dist.get_rank(), dist.get_world_size()
    for epoch in range(attempt.epoch, 10**6):
        loader.sampler.set_epoch(epoch)
        for x, y, indices in attempt.batches(loader, epoch):
            if history.is_over(attempt.step):
                return
            print(f"rank {rank} of {world} takes {attempt.step} in {name} epoch {epoch}:", *indices.tolist(), flush=True)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(parallel(x), y)
            loss.backward()
            optimizer.step()
            stand_still(attempt, history)
            average = loss.detach().clone()
            dist.all_reduce(average)
            scheduler.step()
            history.note(world, attempt.step)


def steps_in(out):
    """Returns of each step its number of ranks, its epoch, and what each rank took: where its update was computed."""
    taken, updated = defaultdict(dict), {}
    for rank, world, step, name, epoch, indices in re.findall(
            r"^rank (\d+) of (\d) takes (\d+) in (\d+) epoch (\d+): ([\d ]+)$", out, re.MULTILINE):
        taken[int(step), int(name)][int(rank)] = (int(world), int(epoch), [int(one) for one in indices.split()])
    for step, name in re.findall(r"^rank \d+ of \d updates (\d+) in (\d+)$", out, re.MULTILINE):
        updated[int(step)] = max(updated.get(int(step), 0), int(name))
    steps = []
    for step, name in sorted(updated.items()):
        parts = taken[step, name]
        (world,), (epoch,) = {part[0] for part in parts.values()}, {part[1] for part in parts.values()}
        assert sorted(parts) == list(range(world)), f"step {step}: {parts}"
        steps.append((world, epoch, [parts[rank][2] for rank in range(world)]))
    assert sorted(updated) == list(range(len(steps))), updated
    return steps


def check(path):
    with open(path) as file:
        out = file.read()
    ends = re.findall(r"^rank \d+ ends with (\w+) after (\d+) steps$", out, re.MULTILINE)
    assert len(ends) == 3 and len(set(ends)) == 1, ends
    steps = steps_in(out)
    assert len(steps) == int(ends[0][1])
    worlds = [world for world, _, _ in steps]
    assert [w for n, w in enumerate(worlds) if n == 0 or worlds[n - 1] != w] == WORLDS, worlds
    weights = next(line for line in out.splitlines() if line.startswith("weights ")).split()[1:]
    check_data(steps)
    check_weights(steps, torch.tensor([float.fromhex(value) for value in weights]))


def check_data(steps):
    """Of each epoch that is over every example was trained on, and few of them twice."""
    seen = defaultdict(Counter)
    for _, epoch, parts in steps:
        seen[epoch].update(index for part in parts for index in part)
    whole = sorted(seen)[:-1]
    assert len(whole) >= 3, whole
    for epoch in whole:
        changes = {world for world, its, _ in steps if its == epoch}
        spare = sum(world - 1 for world in changes) + 2  # where their number changed, and what DistributedSampler adds
        twice = sum(seen[epoch].values()) - EXAMPLES
        missing = set(range(EXAMPLES)) - set(seen[epoch])
        print(f"epoch {epoch}: in worlds of {sorted(changes)}, {twice} examples twice, without {sorted(missing)}")
        assert not missing and twice <= spare, f"epoch {epoch}: without {missing}, and {twice} twice"


def check_weights(steps, weights):
    model, optimizer, scheduler = model_and_optimizer()
    data = Numbers()
    for world, _, parts in steps:
        means = [torch.zeros_like(parameter) for parameter in model.parameters()]
        for part in parts:
            model.zero_grad()
            nn.functional.cross_entropy(model(data.x[part]), data.y[part]).backward()
            for mean, parameter in zip(means, model.parameters()):
                mean += parameter.grad / world
        for mean, parameter in zip(means, model.parameters()):
            parameter.grad = mean
        optimizer.step()
        scheduler.step()
    expected = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    print(f"after {len(steps)} steps the weights differ by {(weights - expected).abs().max():.2g} at most")
    torch.testing.assert_close(weights, expected, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"train": train, "check": check}[sys.argv[1]](sys.argv[2])
