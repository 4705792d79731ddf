# SPDX-License-Identifier: BSD-3-Clause
"""Times training steps with `ddprun.keep` and without, in one process that takes turns: plain, kept, kept, plain, ...

usage: ddprun --keep-memory keep_cost.py MODEL OPTIMIZER PAIRS     (MODEL: many, few; OPTIMIZER: adamw, fused)

Both trainings have equal models, batches and optimizers. Prints JSON: tensors and parameters of the model, the median
time of the plain steps, how many times that the kept ones take (the median of the ratios of the pairs), and the median
time that keep() itself works within a step: its hooks, and where a step starts.
"""
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

import ddprun
import ddprun.torch  # noqa: F401  (before PyTorch 2.14 it makes the backend known)
from ddprun.recovery._memory import is_asked_for

MODEL, OPTIMIZER, PAIRS = sys.argv[1], sys.argv[2], int(sys.argv[3])


class Block(nn.Module):
    """A transformer's block: 12 tensors."""

    def __init__(self, width):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True)

    def forward(self, x):
        return self.layer(x)


def model_and_batch():
    if MODEL == "many":  # 504 tensors, 1.4 million parameters
        return nn.Sequential(*(Block(64) for _ in range(42))), torch.randn(4, 16, 64)
    layers = [layer for _ in range(3) for layer in (nn.Linear(1920, 1920), nn.ReLU())]
    return nn.Sequential(*layers), torch.randn(32, 1920)  # 6 tensors, 11 million parameters


class Training:
    """One of the two trainings that take turns."""

    def __init__(self, keep):
        torch.manual_seed(1)
        self.model, self.batch = model_and_batch()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=OPTIMIZER == "fused")
        self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer)
        self.in_keep = 0.0  # seconds since the step began
        self._take_time_of_hooks(-1)  # hooks are called in the order in which they came
        self.run = ddprun.keep(self.model, self.optimizer, self.scheduler) if keep else None
        self._take_time_of_hooks(1)

    def _take_time_of_hooks(self, sign):
        def note(*_):
            self.in_keep += sign * time.perf_counter()

        self.optimizer.register_step_pre_hook(note)
        self.optimizer.register_step_post_hook(note)

    def step(self):
        """Takes a step and returns its seconds."""
        begun = time.perf_counter()
        if self.run is not None:
            self.run.start_step()
        self.in_keep = time.perf_counter() - begun
        self.optimizer.zero_grad()
        self.model(self.batch).square().mean().backward()
        self.optimizer.step()
        self.scheduler.step()
        return time.perf_counter() - begun


def main():
    assert is_asked_for(), "ddprun was started without --keep-memory"
    torch.set_num_threads(1)
    dist.init_process_group("ddp")
    plain, kept = Training(keep=False), Training(keep=True)
    for training in (plain, kept) * 3:
        training.step()
    times, ratios, in_keep = [], [], []
    for pair in range(PAIRS):
        first, second = (plain, kept) if pair % 2 == 0 else (kept, plain)
        taken = {first: first.step(), second: second.step()}
        times.append(taken[plain])
        ratios.append(taken[kept] / taken[plain])
        in_keep.append(kept.in_keep - plain.in_keep)
    same = all(map(torch.equal, plain.model.parameters(), kept.model.parameters()))
    if dist.get_rank() == 0:
        parameters = list(plain.model.parameters())
        print(json.dumps({"tensors": len(parameters), "parameters": sum(p.numel() for p in parameters),
                          "step_ms": 1e3 * statistics.median(times), "ratio": statistics.median(ratios),
                          "keep_ms": 1e3 * statistics.median(in_keep), "same": same}), flush=True)
    dist.destroy_process_group()


main()
