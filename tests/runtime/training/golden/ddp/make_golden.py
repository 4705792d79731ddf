# SPDX-License-Identifier: BSD-3-Clause
"""Records PyTorch's DistributedDataParallel on known gradients, for tests/runtime/training/ddp/golden_worker.cpp.

    python make_golden.py FOLDER [WORLD_SIZE...]      default: 1 2 3 4 8; needs torch, numpy and safetensors

Writes FOLDER/inputs.safetensors with each rank's own gradients and samples, and FOLDER/world_N.safetensors for each N:
for each case and step the gradients after backward, all parameters in a row; for the training cases the losses.

The loss is the sum of parameter times g, so that the gradient is g, to the bit.
"""

import multiprocessing
import multiprocessing.connection
import os
import sys
import tempfile
from contextlib import nullcontext

import numpy
import torch
import torch.distributed as dist
from safetensors.numpy import save_file
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

WORLDS = [1, 2, 3, 4, 8]
STEPS = 4
# A matrix, its bias, a second one, a convolution's kernel, and a scalar.
SHAPES = [(6, 10), (6,), (9, 6), (9,), (3, 2, 2, 2), (1,)]
BUCKET_BYTES = 256  # several buckets
KEPT = 5.0

MLP = [(8, 16), (16,), (16, 1), (1,)]
TRAINING_STEPS = 20
BATCH = 4


def random_numbers(state, count, bits=24):
    """Returns splitmix64's upper bits, in [-1, 1)."""
    numbers = []
    mask = (1 << 64) - 1
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
        z = z ^ z >> 31
        numbers.append((z >> (64 - bits)) / (1 << (bits - 1)) - 1)
    return numpy.array(numbers)


def count_of(shape):
    return int(numpy.prod(shape))


def make_inputs():
    """Returns gradients of every rank and step, some much larger than others, and the network's samples."""
    total = sum(map(count_of, SHAPES))
    inputs = {}
    for rank in range(max(WORLDS)):
        for step in range(STEPS):
            numbers = random_numbers(1000 * rank + step, 2 * total, bits=53)
            scale = 2.0 ** numpy.floor(8 * numbers[total:])
            inputs[f"gradient.{rank}.{step}"] = numbers[:total] * scale
        inputs[f"x.{rank}"] = random_numbers(100_000 + rank, BATCH * MLP[0][0]).astype("float32")
        inputs[f"y.{rank}"] = random_numbers(200_000 + rank, BATCH).astype("float32")
    numbers = random_numbers(300_000, sum(map(count_of, MLP)))
    inputs["mlp"] = (numbers * 0.5).astype("float32")
    return inputs


class Products(torch.nn.Module):
    """A module whose output is the sum of parameter times factor, over the parameters that have a factor."""

    def __init__(self, dtypes):
        super().__init__()
        self.all = torch.nn.ParameterList(
            [torch.nn.Parameter(torch.ones(shape, dtype=dtype)) for shape, dtype in zip(SHAPES, dtypes)]
        )

    def forward(self, factors):
        return sum((p * f).sum(dtype=torch.float64) for p, f in zip(self.all, factors) if f is not None)


def split(flat, dtypes, unused=()):
    """Returns a row of numbers as one tensor for each parameter, with None for unused parameters."""
    factors, at = [], 0
    for i, (shape, dtype) in enumerate(zip(SHAPES, dtypes)):
        part = flat[at : at + count_of(shape)]
        at += count_of(shape)
        factors.append(None if i in unused else torch.from_numpy(part.copy()).to(dtype).reshape(shape))
    return factors


def gradients_of(module):
    """Returns all gradients in a row."""
    return torch.cat([p.grad.detach().double().reshape(-1) for p in module.parameters()]).numpy()


class Run:
    """One rank of one world. Each case adds its results."""

    def __init__(self, inputs, rank, size):
        self.inputs, self.rank, self.size = inputs, rank, size
        self.results = {}

    def model(self, dtypes, **options):
        options.setdefault("bucket_cap_mb", BUCKET_BYTES / (1 << 20))
        return DistributedDataParallel(Products(dtypes), **options)

    def local(self, step, dtypes, unused=()):
        return split(self.inputs[f"gradient.{self.rank}.{step}"], dtypes, unused)

    def keep(self, case, step, gradients, dtype):
        """Records gradients, after checking that all ranks have the same ones."""
        mine = torch.from_numpy(gradients)
        theirs = mine.clone()
        dist.broadcast(theirs, 0)
        assert torch.equal(mine, theirs), f"{case}: rank {self.rank} has other gradients than rank 0"
        self.results[f"{case}.{step}"] = gradients.astype(dtype)

    def averages(self, case, dtype=torch.float32, hook=None, unused=lambda rank, step: (), by_nobody=lambda step: (),
                 **options):
        """Steps of one backward each. Parameters that no rank uses must keep their gradient, KEPT."""
        dtypes = [dtype] * len(SHAPES)
        model = self.model(dtypes, **options)
        if hook:
            model.register_comm_hook(*hook)
        for step in range(STEPS):
            model.zero_grad(set_to_none=True)
            for i in by_nobody(step):
                model.module.all[i].grad = torch.full(SHAPES[i], KEPT, dtype=dtype)
            model(self.local(step, dtypes, unused(self.rank, step))).backward()
            self.keep(case, step, gradients_of(model), str(dtype).split(".")[1])

    def plain(self):
        self.averages("float32")
        self.averages("float64", dtype=torch.float64)
        self.averages("one_bucket", bucket_cap_mb=25)
        self.averages("bucket_view", gradient_as_bucket_view=True)
        self.averages("static_graph", static_graph=True)

    def mixed(self):
        dtypes = [torch.float64 if i % 2 else torch.float32 for i in range(len(SHAPES))]
        model = self.model(dtypes)
        for step in range(STEPS):
            model.zero_grad(set_to_none=True)
            model(self.local(step, dtypes)).backward()
            self.keep("mixed", step, gradients_of(model), "float64")

    def no_sync(self):
        """Steps 0 and 2 stay local, steps 1 and 3 reduce the sum of two steps."""
        dtypes = [torch.float32] * len(SHAPES)
        model = self.model(dtypes)
        for step in range(STEPS):
            if step % 2 == 0:
                model.zero_grad(set_to_none=True)
            with model.no_sync() if step % 2 == 0 else nullcontext():
                model(self.local(step, dtypes)).backward()
            if step % 2 == 1:
                self.keep("no_sync", step, gradients_of(model), "float32")

    def unused(self):
        """In every second step all parameters are used; in the others parameter 2 only on even ranks, parameter 5 on none."""
        def unused(rank, step):
            if step % 2 == 1:
                return ()
            return (2, 5) if rank % 2 else (5,)

        self.averages("unused", find_unused_parameters=True, unused=unused,
                      by_nobody=lambda step: () if step % 2 else (5,))

    def join(self):
        """Rank r has STEPS - r % 3 batches, at least one. Records rank 0, which has input to the end."""
        for case, initial in (("join", True), ("join_effective", False)):
            dtypes = [torch.float32] * len(SHAPES)
            model = self.model(dtypes)
            with model.join(divide_by_initial_world_size=initial):
                for step in range(STEPS - self.rank % 3):
                    model.zero_grad(set_to_none=True)
                    model(self.local(step, dtypes)).backward()
                    if self.rank == 0:
                        self.results[f"{case}.{step}"] = gradients_of(model).astype("float32")

    def hooks(self):
        self.averages("allreduce_hook", hook=(None, default_hooks.allreduce_hook))
        self.averages("fp16_hook", hook=(None, default_hooks.fp16_compress_hook))
        self.averages("bf16_hook", hook=(None, default_hooks.bf16_compress_hook))

    def train(self):
        for case, momentum in (("sgd", 0.0), ("momentum", 0.9)):
            network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
            at = 0
            for parameter, shape in zip(network.parameters(), MLP):
                values = torch.from_numpy(self.inputs["mlp"][at : at + count_of(shape)].copy()).reshape(shape)
                at += count_of(shape)
                with torch.no_grad():
                    # In the file a matrix has shape inputs x outputs.
                    parameter.copy_(values.T if values.dim() == 2 else values)
            model = DistributedDataParallel(network, bucket_cap_mb=BUCKET_BYTES / (1 << 20))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=momentum)
            x = torch.from_numpy(self.inputs[f"x.{self.rank}"].copy()).reshape(BATCH, 8)
            y = torch.from_numpy(self.inputs[f"y.{self.rank}"].copy()).reshape(BATCH, 1)
            losses = []
            for _ in range(TRAINING_STEPS):
                loss = ((model(x) - y) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                mean = loss.detach().double() / self.size
                dist.all_reduce(mean)
                losses.append(mean.item())
            self.results[f"{case}.losses"] = numpy.array(losses)


def run_rank(inputs, rank, size, rendezvous_point, path):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous_point}", rank=rank, world_size=size)
    run = Run(inputs, rank, size)
    run.plain()
    run.mixed()
    run.no_sync()
    run.unused()
    run.join()
    run.hooks()
    run.train()
    dist.barrier()
    if rank == 0:
        save_file(run.results, path, metadata={"torch": torch.__version__, "world_size": str(size)})
    dist.destroy_process_group()


def make(folder, worlds):
    os.makedirs(folder, exist_ok=True)
    inputs = make_inputs()
    save_file(inputs, os.path.join(folder, "inputs.safetensors"))
    processes = multiprocessing.get_context("fork")  # so that torch is imported only once
    for size in worlds:
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(folder, f"world_{size}.safetensors")
            rendezvous_point = os.path.join(scratch, "store")
            ranks = [
                processes.Process(target=run_rank, args=(inputs, rank, size, rendezvous_point, path)) for rank in range(size)
            ]
            for process in ranks:
                process.start()
            await_all(ranks, size)


def await_all(ranks, size):
    """Waits for all ranks. When one fails, ends the others, which would wait for it."""
    running = {process.sentinel: process for process in ranks}
    while running:
        for ended in multiprocessing.connection.wait(running):
            process = running.pop(ended)
            process.join()
            if process.exitcode:
                for other in running.values():
                    other.kill()
                    other.join()
                sys.exit(f"world of {size}: a rank ended with exit code {process.exitcode}")


if __name__ == "__main__":
    make(sys.argv[1], [int(size) for size in sys.argv[2:]] or WORLDS)
