# SPDX-License-Identifier: BSD-3-Clause
"""What `ddp_bench optimizers` measures (optimizer_cost.hpp), with PyTorch's AdamW and clip_grad_norm_ on a GPU.

usage: torch_optimizers.py COUNTS ROUNDS     COUNTS: a JSON array, each parameter's number of elements
"""
import json
import statistics
import sys
import time

import torch

counts, rounds = json.loads(sys.argv[1]), int(sys.argv[2])
WARM_UPS, CALLS = 3, 20


def parameters():
    made = [torch.nn.Parameter(torch.zeros(count, device="cuda")) for count in counts]
    for parameter in made:
        parameter.grad = torch.ones_like(parameter)
    return made


def cost(what, call):
    whole, host = [], []
    for turn in range(-WARM_UPS, rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        returned = time.perf_counter()
        torch.cuda.synchronize()
        if turn >= 0:
            whole.append((time.perf_counter() - start) * 1e6 / CALLS)
            host.append((returned - start) * 1e6 / CALLS)
    print(json.dumps({"what": what, "us": statistics.median(whole), "host_us": statistics.median(host)}), flush=True)


for name, ways in (("adamw", {"fused": True}), ("adamw_foreach", {"foreach": True})):
    model = parameters()
    optimizer = torch.optim.AdamW(model, lr=1e-3, **ways)
    optimizer.step()
    for parameter in model:
        if not torch.allclose(parameter, torch.full_like(parameter, -1e-3), rtol=1e-5):
            sys.exit(f"{name}: values after a step are not -0.001")
    cost(name, optimizer.step)
norm = torch.nn.utils.clip_grad_norm_(model, 1.0)
if abs(norm.item() / sum(counts) ** 0.5 - 1) > 1e-5:
    sys.exit(f"clip: the gradients' norm is {norm.item()} instead of {sum(counts) ** 0.5}")
cost("clip", lambda: torch.nn.utils.clip_grad_norm_(model, 1.0))
small = [torch.zeros(count, device="cuda", dtype=torch.bfloat16) for count in counts]
cost("read_gradients", lambda: torch._foreach_copy_([parameter.grad for parameter in model], small))
with torch.no_grad():
    cost("write_values", lambda: torch._foreach_copy_(small, model))
