# SPDX-License-Identifier: BSD-3-Clause
"""Records torch.nn.BatchNorm1d on a whole batch: python make_batch_norm.py batch_norm.safetensors

A case is several steps of training, then the first batch once more in eval mode. Its tensors are named "CASE.what" and
are all written as float64, whatever type torch computed in. Its metadata is "steps rows channels length type eps
momentum" (momentum -1: the mean over all batches).
"""

import sys

import torch
from safetensors.torch import save_file

TYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}


def case(dims, kind, seed, compute=None, eps=1e-5, momentum=0.1, affine=True, tracked=True, offset=0.0):
    steps, rows, channels, length = dims
    random = torch.Generator().manual_seed(seed)
    kept = TYPES[kind]
    parameters = torch.float32 if kind == "bfloat16" else kept
    used = compute or kept  # the type torch computes in; the input numbers are representable in type `kind` all the same

    def draw(*shape, scale=1.0, shift=0.0, to=kept):
        return (torch.randn(*shape, generator=random, dtype=torch.float64) * scale + shift).to(to)

    x = draw(steps, rows, channels, length, scale=2, shift=offset)
    dy = draw(steps, rows, channels, length)
    norm = torch.nn.BatchNorm1d(channels, eps, momentum, affine, tracked, dtype=compute or parameters)
    tensors = {"x": x, "dy": dy}
    if affine:
        tensors |= {"weight": draw(channels, shift=1, to=parameters), "bias": draw(channels, to=parameters)}
        norm.weight.data.copy_(tensors["weight"])
        norm.bias.data.copy_(tensors["bias"])
    y, dx = torch.empty_like(x, dtype=used), torch.empty_like(x, dtype=used)

    def step(at, out, grad):
        batch = (x[at] if length > 1 else x[at].squeeze(-1)).to(used).requires_grad_()
        result = norm(batch)
        result.backward((dy[at] if length > 1 else dy[at].squeeze(-1)).to(used))
        out.copy_(result.detach().view_as(out))
        grad.copy_(batch.grad.view_as(grad))

    for at in range(steps):
        step(at, y[at], dx[at])
    tensors |= {"y": y, "dx": dx}
    if tracked:
        tensors |= {"running_mean": norm.running_mean, "running_var": norm.running_var}
        assert norm.num_batches_tracked.item() == steps
    if affine:
        tensors |= {"weight_grad": norm.weight.grad.clone(), "bias_grad": norm.bias.grad.clone()}
    norm.eval()
    eval_y, eval_dx = torch.empty_like(y[0]), torch.empty_like(y[0])
    step(0, eval_y, eval_dx)
    if tracked:  # else torch uses the batch statistics of one process, to which ranks have nothing to compare
        tensors |= {"eval_y": eval_y, "eval_dx": eval_dx}
    facts = [*dims, kind, eps, -1 if momentum is None else momentum]
    return {k: v.detach().to(torch.float64).contiguous() for k, v in tensors.items()}, " ".join(map(str, facts))


def main():
    cases = {
        "plain": case((3, 13, 3, 5), "float64", 1),
        "rows": case((3, 11, 4, 1), "float64", 2, momentum=None, eps=1e-3),
        "bare": case((2, 9, 2, 4), "float64", 3, affine=False, tracked=False),
        "float32": case((3, 13, 3, 7), "float32", 4, momentum=0.3),
        # The mean is 10,000 times the spread. PyTorch itself loses most of float32's precision
        # there, so it gets float64.
        "far": case((2, 12, 2, 6), "float32", 5, compute=torch.float64, offset=20000),
        "bfloat16": case((2, 13, 3, 4), "bfloat16", 6, eps=1e-2),
    }
    tensors = {f"{name}.{what}": value for name, (values, _) in cases.items() for what, value in values.items()}
    metadata = {name: facts for name, (_, facts) in cases.items()}
    save_file(tensors, sys.argv[1], metadata={"torch": torch.__version__.split("+")[0], **metadata})


main()
