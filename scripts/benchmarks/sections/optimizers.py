# SPDX-License-Identifier: BSD-3-Clause
"""The optimizer's part of a step on a GPU, beside PyTorch's."""
import json
import os
import subprocess

from ..page import Column
from ..processes import json_lines
from ..rounds import Contender
from .nccl import gpus

TITLE = "AdamW, clipping and master weights on a GPU"
ABOUT = """
GPT-2's 124 million parameters in float32, as 148 tensors. Calls are put on a stream one after the other; a call's time is
its share of the time until the GPU is done. The results of a first call are checked.

* AdamW: `ddp::AdamW`, and `torch.optim.AdamW(fused=True)`; foreach: with `foreach=True`, PyTorch's default.
* clip: `ddp::cuda::GradientNorm::clip(1)`, and `torch.nn.utils.clip_grad_norm_`.
* gradients to float32, values to bfloat16: `read_gradients()` and `write_values()` of `ddp::cuda::MasterWeights`, and
  `torch._foreach_copy_`, for a model in bfloat16.
* host: how long a call keeps the CPU.
"""
KINDS = ["adamw", "clip", "read_gradients", "write_values"]
FIGURES = {"libddp": KINDS, "torch": [*KINDS, "adamw_foreach"]}


def figures_of(command, name):
    costs = {line["what"]: line for line in json_lines(command)}
    figures = {what: costs[what]["us"] for what in FIGURES[name]}
    return {**figures, **{f"{what} host": costs[what]["host_us"] for what in FIGURES[name]}}


def measure(bench):
    program = bench.binary("ddp_bench")
    model, rounds = ("mlp", "2") if bench.quick else ("gpt2", "20")
    described = subprocess.run([program, "ddp", "--describe", "--model", model], check=True, stdout=subprocess.PIPE,
                               text=True).stdout
    counts = [parameter["count"] for parameter in json.loads(described)["parameters"]]
    count, why = gpus(bench)
    no_gpu = "" if count else f"no GPU ({why.split(':')[0]})"
    ours = [program, "optimizers", "--model", model, "--rounds", rounds]
    script = [bench.python, os.path.join(bench.root, "apps/ddp_bench/steps/torch_optimizers.py")]
    return [bench.in_turn("gpt2, float32", [
        Contender("libddp", ours, lambda: figures_of(ours, "libddp"), not_run=no_gpu),
        Contender("torch", [*script, "COUNTS", rounds],
                  lambda: figures_of([*script, json.dumps(counts), rounds], "torch"),
                  "" if bench.no_torch else bench.torch_version, no_gpu or bench.no_torch)], runs=5)]


def write(page, groups):
    group, = groups
    columns = [("AdamW µs", "adamw"), ("host µs", "adamw host"), ("foreach µs", "adamw_foreach"), ("clip µs", "clip"),
               ("host µs", "clip host"), ("gradients to float32 µs", "read_gradients"), ("values to bfloat16 µs", "write_values")]
    page.rows(group, [Column(head, figure) for head, figure in columns])
    page.commands(groups)
