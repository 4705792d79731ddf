# SPDX-License-Identifier: BSD-3-Clause
"""Records torch's optimizers, learning-rate schedules, clip_grad_norm_ and GradScaler on numbers that the tests compute too:
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


def schedule_case(make, epochs, lrs=(0.1, 0.03), optimizer="SGD", **options):
    """Records the rates of two groups at each epoch, and the first group's momentum or beta1."""
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in lrs]
    optimizer = getattr(torch.optim, optimizer)(groups, **options)
    schedule = make(optimizer)
    after = []
    for _ in range(epochs + 1):
        group = optimizer.param_groups[0]
        momentum = group["momentum"] if "momentum" in group else group["betas"][0]
        after.append([[g["lr"] for g in optimizer.param_groups], momentum])
        optimizer.step()
        if len(after) <= epochs:
            schedule.step()
    return after


def chained(*makers):
    def make(optimizer):
        schedules = [maker(optimizer) for maker in makers]
        return torch.optim.lr_scheduler.ChainedScheduler(schedules)
    return make


def sequential(milestones, *makers):
    def make(optimizer):
        return torch.optim.lr_scheduler.SequentialLR(optimizer, [maker(optimizer) for maker in makers], milestones)
    return make


def schedules():
    s = torch.optim.lr_scheduler
    linear, cosine = lambda o: s.LinearLR(o, 0.1, 1.0, 7), lambda o: s.CosineAnnealingLR(o, 20, 0.001)
    return {
        "step": schedule_case(lambda o: s.StepLR(o, 7, 0.3), 30),
        "multi_step": schedule_case(lambda o: s.MultiStepLR(o, [3, 9, 9, 20], 0.5), 30),
        "exponential": schedule_case(lambda o: s.ExponentialLR(o, 0.93), 30),
        "linear": schedule_case(lambda o: s.LinearLR(o), 10),
        "linear_down": schedule_case(lambda o: s.LinearLR(o, 0.9, 0.05, 13), 20),
        "cosine": schedule_case(lambda o: s.CosineAnnealingLR(o, 11, 0.002), 50),
        "lambda": schedule_case(lambda o: s.LambdaLR(o, lambda epoch: 1 / (1 + epoch)), 30),
        "chained": schedule_case(chained(linear, lambda o: s.ExponentialLR(o, 0.9)), 30),
        "sequential": schedule_case(sequential([7], linear, cosine), 30),
        "sequential_of_three": schedule_case(sequential([4, 11], linear, lambda o: s.StepLR(o, 2), cosine), 30),
        "one_cycle": schedule_case(lambda o: s.OneCycleLR(o, 0.5, 40), 40, momentum=0.9),
        "one_cycle_adam": schedule_case(lambda o: s.OneCycleLR(o, 0.5, 33, three_phase=True, anneal_strategy="linear",
                                                               pct_start=0.25, div_factor=10.0), 33, optimizer="Adam"),
    }


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
    "schedules": schedules(),
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
