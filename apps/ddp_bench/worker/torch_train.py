# SPDX-License-Identifier: BSD-3-Clause
"""A rank that trains a model with the shapes of `train` (apps/train/model/gpt.hpp) and torch's own DDP.

usage: torch_train.py STEPS     prints tokens a second and the losses of the first and last step as a line of JSON
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

CONTEXT, LAYERS, HEADS, WIDTH, VOCABULARY, BATCH = 64, 2, 4, 96, 256, 16  # the defaults of `train`
steps = int(sys.argv[1])

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.attend(self.norm1(x)).chunk(3, -1))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).flatten(2))
        return x + self.narrow(functional.gelu(self.widen(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.bytes, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.bytes(x) + self.places.weight)))


torch.manual_seed(1)
model = nn.parallel.DistributedDataParallel(Gpt())
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3, weight_decay=0.1)
# Texts that can be learnt: each byte determines the next.
starts = torch.randint(VOCABULARY, (steps, BATCH, 1))
texts = (starts + 7 * torch.arange(CONTEXT + 1)) % VOCABULARY
losses = []
dist.barrier()
begun = time.perf_counter()
for batch in texts:
    mine = batch[rank::ranks]
    scores = model(mine[:, :-1])
    loss = functional.cross_entropy(scores.flatten(0, 1), mine[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1)
    optimizer.step()
    average = loss.detach().clone()  # what `train` prints of each step
    dist.all_reduce(average)
    losses.append(average.item() / ranks)
seconds = time.perf_counter() - begun
if rank == 0:
    print(json.dumps({"tokens_per_second": steps * BATCH * CONTEXT / seconds, "ranks": ranks,
                      "first_loss": losses[0], "last_loss": losses[-1]}), flush=True)
dist.barrier()
dist.destroy_process_group()
os._exit(0)  # torch 2.15's Gloo sometimes aborts when the interpreter ends, under any launcher
