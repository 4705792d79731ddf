# SPDX-License-Identifier: BSD-3-Clause
"""Records torch's optimizers, clip_grad_norm_ and GradScaler on numbers that the tests compute too:
python make_optimizers.py > optimizers.json
"""

import json

import torch

STEPS = 20
COUNT = 37


def numbers(step, count, dtype):
    """Returns numbers spread over [-2, 2) that are exact in every floating-point type."""
    return torch.tensor([((step * 131 + i * 197) % 255 - 127) / 64 for i in range(count)], dtype=dtype)


def optimizer_case(name, dtype, **options):
    weights = torch.nn.Parameter(numbers(0, COUNT, dtype))
    optimizer = getattr(torch.optim, name)([weights], **options)
    for step in range(1, STEPS + 1):
        weights.grad = numbers(step, COUNT, dtype)
        optimizer.step()
    state = {key: value.tolist() for key, value in optimizer.state[weights].items()
             if isinstance(value, torch.Tensor) and value.dim() > 0}
    return {"optimizer": name, "dtype": str(dtype).removeprefix("torch."), "steps": STEPS, "options": options,
            "values": weights.tolist(), "state": state}


def clip_case(dtype, norm_type, max_norm):
    parts = [torch.nn.Parameter(torch.zeros(count, dtype=dtype)) for count in (5, 1, 64)]
    for i, part in enumerate(parts):
        part.grad = numbers(i + 1, part.numel(), dtype)
    norm = torch.nn.utils.clip_grad_norm_(parts, max_norm, norm_type)
    return {"dtype": str(dtype).removeprefix("torch."), "norm_type": str(norm_type), "max_norm": max_norm,
            "norm": norm.item(), "gradients": torch.cat([part.grad for part in parts]).tolist()}


def scaler_case(overflows, **options):
    scaler = torch.amp.GradScaler("cpu", **options)
    weights = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weights], lr=1)
    after = []
    for overflow in overflows:
        scaler.scale(torch.tensor(1.0))
        weights.grad = torch.tensor([1.0, float("inf") if overflow else 2.0])
        scaler.step(optimizer)
        scaler.update()
        after.append([scaler.get_scale(), scaler.state_dict()["_growth_tracker"], weights[0].item()])
    return {"options": options, "overflows": overflows, "after": after}


f32, f64 = torch.float32, torch.float64
golden = {
    "torch": torch.__version__,
    "optimizers": [
        optimizer_case("AdamW", f32),
        optimizer_case("AdamW", f64),
        optimizer_case("AdamW", f32, lr=0.01, betas=[0.9, 0.99], eps=1e-6, weight_decay=0.1),
        optimizer_case("AdamW", f32, lr=0.05, betas=[0.5, 0.9], weight_decay=0.0, maximize=True),
        optimizer_case("Adam", f32),
        optimizer_case("Adam", f64, lr=0.02, betas=[0.8, 0.99], weight_decay=0.1),
        optimizer_case("Adam", f32, lr=0.01, eps=1e-6, weight_decay=0.05, maximize=True),
        optimizer_case("SGD", f32, lr=0.1),
        optimizer_case("SGD", f32, lr=0.01, momentum=0.9, weight_decay=0.05),
        optimizer_case("SGD", f64, lr=0.01, momentum=0.9, dampening=0.25),
        optimizer_case("SGD", f32, lr=0.02, momentum=0.8, nesterov=True, weight_decay=0.01, maximize=True),
    ],
    "clips": [
        clip_case(dtype, norm_type, max_norm)
        for dtype in (f32, f64)
        for norm_type in (1.0, 2.0, 3.0, float("inf"))
        for max_norm in (0.5, 1000.0)
    ],
    "scalers": [
        scaler_case([0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0], growth_interval=3),
        scaler_case([1] * 5 + [0] * 5, init_scale=8.0, growth_factor=1.5, backoff_factor=0.3, growth_interval=2),
        scaler_case([0] * 4, init_scale=2.0**127, growth_interval=1),
    ],
}
print(json.dumps(golden, separators=(",", ":")))
