# SPDX-License-Identifier: BSD-3-Clause
"""A rank that runs the steps of `ddp_bench ddp` (rounds.hpp) with torch's own DistributedDataParallel and Gloo.

usage: torch_steps.py WORK PLAN     WORK: libbackward_work.so; PLAN: a JSON object, see scripts/benchmarks/ddp

Autograd runs its backward: a chain of functions, one for each parameter, whose backward does the same work in the same
machine code and returns the parameter's gradient. The step `backward`, from which the others are counted, contains what
autograd and Python add.
"""
import ctypes
import json
import os
import sys
import time

import torch
import torch.distributed as dist

plan = json.loads(sys.argv[2])
work = ctypes.CDLL(sys.argv[1]).backward_work
work.restype = None
work.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_double, ctypes.c_float, ctypes.c_int64]
WARM_UPS = 3

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
started = 0  # start of this backward, in ns of the monotonic clock


class Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, parameter, updates, ready_after):
        ctx.count, ctx.updates, ctx.ready_after = parameter.numel(), updates, ready_after
        return x.clone()

    @staticmethod
    def backward(ctx, x_gradient):
        gradient = torch.empty(ctx.count)
        ready_at = 0 if ctx.ready_after is None else started + ctx.ready_after
        work(gradient.data_ptr(), ctx.count, ctx.updates, rank + 1, ready_at)
        return x_gradient, gradient, None, None


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.zeros(p["count"]) for p in plan["parameters"])
        self.times = []
        passed = 0
        for p in reversed(plan["parameters"]):
            passed += p["share"] * plan["backward"]
            updates = p["share"] * plan["backward"] * plan["busy"] * plan["updates_per_second"]
            self.times.append((updates, int(passed * 1e9) if plan["busy"] < 1 else None))
        self.times.reverse()

    def forward(self, x):
        for weight, (updates, ready_after) in zip(self.weights, self.times):
            x = Layer.apply(x, weight, updates, ready_after)
        return x


def backward(module, model):
    """Returns its start time, which is after forward: forward is Python here and is not compared."""
    global started
    for weight in model.weights:
        weight.grad = None
    loss = module(torch.zeros(1, requires_grad=True)).sum()
    dist.barrier()
    start = time.perf_counter()
    started = time.monotonic_ns()
    loss.backward()
    return start


def check(name, gradients, expected):
    for i, gradient in enumerate(gradients):
        if not torch.allclose(gradient, torch.full_like(gradient, expected), rtol=1e-5):
            sys.exit(f"{name}: the gradient of {plan['parameters'][i]['name']} is not {expected}")


def steps():
    """Name, size of buckets, what makes a step and returns when it began, and its gradients' value."""
    average = (ranks + 1) / 2
    model = Model()
    flat = torch.ones(sum(p["count"] for p in plan["parameters"]))

    def plain():
        start = backward(model, model)
        dist.all_reduce(flat)
        return start

    yield "backward", 0, lambda: backward(model, model), model, rank + 1
    yield "plain", 0, plain, model, rank + 1
    for mib in plan["bucket_mib"]:
        for name, view in (("ddp", False), ("ddp_view", True)):
            model_of_its_own = Model()
            ddp = torch.nn.parallel.DistributedDataParallel(
                model_of_its_own, bucket_cap_mb=mib, gradient_as_bucket_view=view)
            yield (name, mib, lambda ddp=ddp, model=model_of_its_own: backward(ddp, model), model_of_its_own, average)


kinds = [[*kind, []] for kind in steps()]
for name, _, step, model, expected, _ in kinds:
    for _ in range(WARM_UPS):
        step()
    check(name, [weight.grad for weight in model.weights], expected)
for turn in range(plan["rounds"]):
    for i in range(len(kinds)):
        kind = kinds[(turn + i) % len(kinds)]
        start = kind[2]()
        took = torch.tensor([(time.perf_counter() - start) * 1e3])
        dist.all_reduce(took, op=dist.ReduceOp.MAX)
        kind[5].append(took.item())
if rank == 0:
    for name, mib, _, _, _, times in kinds:
        print(json.dumps({"step": name, "bucket_mib": mib, "round_ms": times}), flush=True)
dist.barrier()
dist.destroy_process_group()
os._exit(0)  # torch 2.15's Gloo sometimes aborts when the interpreter ends, under any launcher
