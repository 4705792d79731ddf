# SPDX-License-Identifier: BSD-3-Clause
"""Trains a model in `ddprun.attempts`, dies at places that a test names, and prints what it has at the end.

usage: trainer.py BACKEND STEPS [die=RANK:STEP:PLACE:RESTART | stop=RANK:STEP:PLACE:RESTART | kills=N:SEED]...

A rank dies by SIGKILL, or stops by SIGSTOP, in the round with that restart count. Places, in their order: start (of the
program), form (the ranks are there, and are not connected), given (while the state is sent), before (a step), backward,
update, updated (before what follows the update), logged, end (before the others have come to the end).
A rank that dies where another one stops waits until that one stands still. With kills=N:SEED a rank that is drawn dies at
an instant that is drawn, in each of the first N rounds: while the group is formed, or in the steps after that. Each rank whose process has stayed says how
long its longest step took.
"""
import hashlib
import inspect
import os
import random
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ddprun
from ddprun.recovery import _training

BACKEND, STEPS = sys.argv[1], int(sys.argv[2])
OPTIONS = [word.partition("=")[::2] for word in sys.argv[3:]]
SPARES_SYNC = "init_sync" in inspect.signature(DistributedDataParallel.__init__).parameters


def named(kind, place, step):
    """Returns the ranks to which that happens here and now."""
    restart = os.environ["TORCHELASTIC_RESTART_COUNT"]
    parts = [value.split(":") for name, value in OPTIONS if name == kind]
    return [int(rank) for rank, its_step, its_place, its_restart in parts
            if its_place == place and its_restart == restart and (step is None or int(its_step) == step)]


def stands_still(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


def meet_fate(place, step=None):
    rank, pid = int(os.environ["RANK"]), os.getpid()
    if rank in named("stop", place, step):
        dist.distributed_c10d._get_default_store().set("stops", str(pid))
        print(f"rank {rank} stops at step {step}", flush=True)
        os.kill(pid, signal.SIGSTOP)
    if rank not in named("die", place, step):
        return
    for _ in named("stop", place, step):
        other = int(dist.distributed_c10d._get_default_store().get("stops"))
        while not stands_still(other):
            time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)


def arm():
    for kills, seed in [value.split(":") for name, value in OPTIONS if name == "kills"]:
        restart = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        draw = random.Random(f"{seed} {restart}")
        victim, delay = draw.randrange(int(os.environ["WORLD_SIZE"])), draw.uniform(0.0005, 0.12)
        if restart < int(kills) and victim == int(os.environ["RANK"]):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # it ends the process between two instructions
            signal.setitimer(signal.ITIMER_REAL, delay)


def first_with(place, function):
    def meet_fate_first(*args, **kwargs):
        meet_fate(place)
        if place == "form":
            arm()
        return function(*args, **kwargs)

    return meet_fate_first


class Ema:
    """An exponential moving average of a model's parameters."""

    def __init__(self, model):
        self.averages = [p.detach().clone() for p in model.parameters()]

    def update(self, model):
        for average, parameter in zip(self.averages, model.parameters()):
            average.lerp_(parameter.detach(), 0.05)

    def state_dict(self):
        return {"averages": self.averages}

    def load_state_dict(self, state):
        for average, value in zip(self.averages, state["averages"]):
            average.copy_(value)


def digest(*parts):
    """Returns a number for the bits of tensors and other values."""
    whole = hashlib.sha256()
    for part in parts:
        if isinstance(part, torch.Tensor):
            part = part.detach().contiguous().view(-1).numpy().tobytes()
        whole.update(part if isinstance(part, bytes) else repr(part).encode())
    return whole.hexdigest()[:16]


def state_in_order(optimizer):
    for group in optimizer.param_groups:
        yield sorted((k, v) for k, v in group.items() if k != "params")
        for parameter in group["params"]:
            yield from (value for _, value in sorted(optimizer.state[parameter].items()))


def train(attempt, parallel, loader, optimizer, scheduler, ema, steps_at):
    model = parallel.module
    for epoch in range(attempt.epoch, STEPS + 1):  # more than enough
        loader.sampler.set_epoch(epoch)
        for x, y in attempt.batches(loader, epoch):
            if attempt.step >= STEPS:
                break
            steps_at.append(time.monotonic())
            meet_fate("before", attempt.step)
            optimizer.zero_grad()
            out = parallel(x)
            model[0].bias.register_hook(lambda _, step=attempt.step: meet_fate("backward", step))
            loss = nn.functional.cross_entropy(out, y)
            loss.backward()
            model[0].bias._backward_hooks.clear()
            optimizer.step()
            meet_fate("updated", attempt.step)
            average = loss.detach().clone()
            dist.all_reduce(average)
            meet_fate("logged", attempt.step)
            scheduler.step()
            ema.update(model)
        if attempt.step >= STEPS:
            return


def main():
    meet_fate("start")
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))
    generator = torch.Generator().manual_seed(5)
    data = torch.utils.data.TensorDataset(torch.randn(96, 16, generator=generator),
                                          torch.randint(10, (96,), generator=generator))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 10) * 0.99**n)
    ema = Ema(model)
    dist.init_process_group = first_with("form", dist.init_process_group)
    _training.give_tensors = first_with("given", _training.give_tensors)
    steps_at = []  # when each step began
    for attempt in ddprun.attempts(model, optimizer, scheduler, extra=[ema], backend=BACKEND, seed=7):
        with attempt:
            rank = dist.get_rank()
            print(f"rank {rank} begins attempt {attempt.number} at step {attempt.step} (pid {os.getpid()}): "
                  f"{attempt.recovered}", flush=True)
            optimizer.register_step_pre_hook(lambda *_: meet_fate("update", attempt.step))
            # Gloo adds in another order once the buckets are rebuilt, which it does not do with this option.
            options = {"find_unused_parameters": BACKEND == "gloo", **({"init_sync": False} if SPARES_SYNC else {})}
            parallel = DistributedDataParallel(model, **options)
            sampler = torch.utils.data.DistributedSampler(data, shuffle=True)
            loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler)
            train(attempt, parallel, loader, optimizer, scheduler, ema, steps_at)
            meet_fate("end")
            signal.setitimer(signal.ITIMER_REAL, 0)
    state = digest(*model.parameters(), *state_in_order(optimizer), *ema.averages, scheduler.state_dict())
    chance = digest(torch.rand(3))
    longest = max((b - a for a, b in zip(steps_at, steps_at[1:])), default=0.0)
    stopped = f"; stopped for {1000 * longest:.0f} ms" if attempt.number > 0 else ""
    print(f"rank {rank} ends with {state} {chance} {digest(*model.buffers())} (pid {os.getpid()}){stopped}", flush=True)


main()
