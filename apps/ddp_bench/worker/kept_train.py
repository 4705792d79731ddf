# SPDX-License-Identifier: BSD-3-Clause
"""A rank that trains 11 million parameters with AdamW until it is ended, and stamps each step (stamps.h) when its loss is
averaged over all ranks: in `what` is the step's number.

usage: kept_train.py FILE keep                     with ddprun.keep, which finds memory only under --keep-memory
       kept_train.py FILE attempts                 in ddprun.attempts over Gloo, which go on under --on-failure replace
       kept_train.py FILE checkpoint EVERY         writes FILE.pt after each EVERY steps, and goes on from it
       kept_train.py FILE torchft                  with torchft over Gloo, as a group of one replica of REPLICA_GROUP_ID
"""
import datetime
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

try:
    import ddprun
    import ddprun.torch  # noqa: F401  (without the package's metadata it makes the backend known)
except ImportError:  # under torchrun, which needs no ddprun
    pass

FILE, MODE = sys.argv[1], sys.argv[2]
EVERY = int(sys.argv[3]) if MODE == "checkpoint" else 0


def stamp(what):
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)  # it changes in a process that stays
    rank = os.environ["RANK"]
    if MODE == "torchft":
        rank, restart = os.environ["REPLICA_GROUP_ID"], 0  # each group restarts by itself
    line = f"{rank} {restart} {what} {os.getpid()} {time.clock_gettime_ns(time.CLOCK_REALTIME)}\n"
    with open(FILE, "a") as file:
        file.write(line)


class Place:
    """Steps that are done."""

    def __init__(self):
        self.step = 0

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


def model_and_optimizer():
    model = nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(1920, 1920), nn.ReLU())))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if MODE == "torchft":
        return train_with_torchft()
    if MODE != "attempts":
        dist.init_process_group("ddp" if MODE == "keep" else "gloo")
    model, optimizer = model_and_optimizer()
    place, run, checkpoint = Place(), None, FILE + ".pt"
    if MODE == "keep":
        run = ddprun.keep(model, optimizer, extra=[place])
    elif os.path.exists(checkpoint):
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        place.step = saved["step"]
    if MODE != "attempts":
        return train(DistributedDataParallel(model), optimizer, place, run)
    for attempt in ddprun.attempts(model, optimizer, extra=[place], backend="gloo"):
        with attempt:
            train(DistributedDataParallel(model, init_sync=False), optimizer, place, attempt)


def train(parallel, optimizer, place, run):
    batch = torch.randn(32, 1920)
    while True:
        if run is not None:
            run.start_step()
        loss = parallel(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average = loss.detach().clone()
        dist.all_reduce(average)
        assert torch.isfinite(average)
        place.step += 1
        stamp(place.step)
        if EVERY and place.step % EVERY == 0 and dist.get_rank() == 0:
            saved = {"model": parallel.module.state_dict(), "optimizer": optimizer.state_dict(), "step": place.step}
            torch.save(saved, FILE + ".pt.new")
            os.replace(FILE + ".pt.new", FILE + ".pt")


def train_with_torchft():
    """Takes the times that torchft's example takes."""
    import torchft

    model, inner = model_and_optimizer()

    def load(state):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=datetime.timedelta(seconds=5)), min_replica_size=1, load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        replica_id=f"group_{os.environ['REPLICA_GROUP_ID']}", timeout=datetime.timedelta(seconds=30))
    parallel, optimizer = torchft.DistributedDataParallel(manager, model), torchft.Optimizer(manager, inner)
    batch = torch.randn(32, 1920)
    while True:
        before = manager.current_step()
        optimizer.zero_grad()
        parallel(batch).square().mean().backward()
        optimizer.step()
        if manager.current_step() > before:
            stamp(manager.current_step())


main()
