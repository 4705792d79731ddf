# SPDX-License-Identifier: BSD-3-Clause
"""Trains a model with `ddprun.keep`, may kill itself on the way, and prints what it has at the end.

usage: trainer.py CASE STEPS DEATHS SEED [BACKEND]

In the case "torn" all ranks die within each sixth update. In the cases of SHARDED, ranks have tensors of their own, and in
each second life a rank dies within an update. In the case "lost" that happens once, without a shadow. In the others, in
each of the first DEATHS lives of the job a rank, or several, or all, die at an instant that is drawn from SEED.
"""
import hashlib
import os
import random
import signal
import sys

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ddprun
import ddprun.torch  # noqa: F401  (before PyTorch 2.14 it makes the backend known)

CASE, STEPS, DEATHS, SEED = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
BACKEND = sys.argv[5] if len(sys.argv) > 5 else "ddp"
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LIFE = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
SHARDED = ("zero", "lost", "fsdp1", "fsdp1-views", "fsdp2")


class Numbers(torch.utils.data.Dataset):
    """Items with noise that is new each time."""

    def __init__(self, shape, classes):
        generator = torch.Generator().manual_seed(5)
        self.items = torch.randn(96, *shape, generator=generator)
        self.classes = torch.randint(classes, (96,), generator=generator)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, number):
        if torch.utils.data.get_worker_info() is not None:
            return self.items[number], self.classes[number]  # random numbers of DataLoader's processes do not come back
        noise = torch.rand(()) + random.random() + numpy.random.rand()
        return self.items[number] + 0.01 * noise, self.classes[number]


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 10)
        self.tied = nn.Linear(32, 10)
        self.tied.weight = self.head.weight

    def forward(self, x):
        x = self.encoder(x).mean(1)
        return self.head(x) + self.tied(x)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))

    def forward(self, x):
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(x + self.norms[1](self.second(y)))


class ResNet(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), Block(8), Block(8),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))


def perceptron():
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2),
                         nn.Linear(64, 10))


class Ema:
    """An exponential moving average of a model's parameters."""

    def __init__(self, model):
        self.averages = [local(p).clone() for p in model.parameters()]

    def update(self, model):
        for average, parameter in zip(self.averages, model.parameters()):
            average.lerp_(local(parameter), 0.05)

    def state_dict(self):
        return {"averages": self.averages}

    def load_state_dict(self, state):
        for average, value in zip(self.averages, state["averages"]):
            average.copy_(value)


class Losses:
    """What the loop logs: sums of losses that were averaged over ranks."""

    def __init__(self):
        self.sum, self.validations, self.draws = 0.0, 0.0, 0.0

    def state_dict(self):
        return dict(vars(self))

    def load_state_dict(self, state):
        vars(self).update(state)


def arm(life):
    """Has this process die soon, in the lives in which it is to."""
    if life >= DEATHS:
        return
    draw = random.Random(f"{SEED} {life}")
    kind = draw.choice(["one", "one", "two", "all"])
    victims = draw.sample(range(SIZE), {"one": 1, "two": min(2, SIZE), "all": SIZE}[kind])
    delay = draw.uniform(0.001, 1 if CASE == "workers" else 0.12)
    if RANK in victims:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # it ends the process between two instructions
        signal.setitimer(signal.ITIMER_REAL, delay)


def die_within_updates(optimizer, run):
    """Has all ranks die in the update of each sixth step, once all of them are in it."""
    first, store = run.step, dist.distributed_c10d._get_default_store()

    def die(*_):
        if run.step % 6 != 5 or run.step == first:
            return
        if store.add("dying", 1) == SIZE:
            store.set("all are dying", "1")
        store.wait(["all are dying"])
        os.kill(os.getpid(), signal.SIGKILL)

    optimizer.register_step_pre_hook(die)  # after keep's, so that the update has begun


def die_within_an_update(optimizer, run):
    """Has one rank die within an update, in each second life of the job: before it writes, or once it has written."""
    draw = random.Random(f"{SEED} within {LIFE}")
    rank, step, is_late = draw.randrange(SIZE), run.step + 1 + draw.randrange(3), draw.random() < 0.5

    def die(*_):
        if RANK == rank and run.step == step:
            os.kill(os.getpid(), signal.SIGKILL)

    inner = getattr(optimizer, "optim", optimizer)  # before ZeroRedundancyOptimizer sends its part round
    (inner.register_step_post_hook if is_late and inner is not optimizer else optimizer.register_step_pre_hook)(die)


def die_after_a_skipped_step(optimizer, run):
    """Has rank 1 die after the first update that follows a batch without one: the next process does both again, the
    batch without an update with newer parameters."""
    def die(*_):
        if run.batch == 4:
            os.kill(os.getpid(), signal.SIGKILL)

    optimizer.register_step_post_hook(die)


def model_and_data():
    if CASE in ("transformer", "accumulation"):
        return Transformer(), Numbers((6, 32), 10)
    if CASE in ("resnet", "ema"):
        return ResNet(), Numbers((3, 8, 8), 10)
    return perceptron(), Numbers((48,), 10)


def optimizer_of(model):
    if CASE == "transformer":
        return torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
    if CASE in ("resnet", "ema"):
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
    if CASE == "nadam":
        return torch.optim.NAdam(model.parameters(), lr=1e-3)
    if CASE == "adagrad":
        return torch.optim.Adagrad(model.parameters(), lr=1e-2, initial_accumulator_value=0.1)
    if CASE in ("zero", "lost"):
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=2e-3)
    halves = [list(model.parameters())[:2], list(model.parameters())[2:]]
    return torch.optim.Adam([{"params": halves[0], "lr": 1e-3}, {"params": halves[1], "weight_decay": 0.01}], lr=2e-3)


def local(tensor):
    """Returns what this rank has of a tensor."""
    return tensor.to_local().detach() if hasattr(tensor, "to_local") else tensor.detach()


def sharded(model):
    """Returns the model with each rank having shards of its parameters."""
    if CASE == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for layer in (model[1], model[5]):
            fully_shard(layer)
        return fully_shard(model)
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    return FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
                                    device_id=torch.device("cpu"), use_orig_params=CASE == "fsdp1-views")


def digest(*parts):
    """Returns a number for the bits of tensors and other values."""
    whole = hashlib.sha256()
    for part in parts:
        if isinstance(part, torch.Tensor):
            part = local(part).contiguous().view(-1).view(torch.uint8) if part.numel() else torch.zeros(1)
            whole.update(part.numpy().tobytes())
        else:
            whole.update(repr(part).encode())
    return whole.hexdigest()[:16]


def state_in_order(optimizer):
    optimizer = getattr(optimizer, "optim", optimizer)
    for group in optimizer.param_groups:
        yield sorted((k, v) for k, v in group.items() if k != "params")
        for parameter in group["params"]:
            yield from (value for _, value in sorted(optimizer.state[parameter].items()))


def main():
    torch.manual_seed(1)
    random.seed(RANK)
    numpy.random.seed(RANK)
    dist.init_process_group(BACKEND)
    model, data = model_and_data()
    is_fsdp = CASE.startswith("fsdp")
    if is_fsdp:
        model = sharded(model)
    before = CASE in ("resnet", "adam")  # keep() after DistributedDataParallel, or before it
    optimizer = optimizer_of(model)
    per_epoch = CASE == "resnet"
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 10) * 0.99**n)
    ema, losses = Ema(model), Losses()
    scaler = torch.amp.GradScaler("cpu", enabled=CASE == "mixed", init_scale=1024.0, growth_interval=5)
    if before:
        run = ddprun.keep(model, optimizer, scheduler, extra=[ema, losses, scaler])
        torch.manual_seed(100 + RANK)
    parallel = model if is_fsdp else DistributedDataParallel(model)
    if not before:
        torch.manual_seed(100 + RANK)
        run = ddprun.keep(parallel, optimizer, scheduler, extra=[ema, losses, scaler])
    sampler = torch.utils.data.DistributedSampler(data, shuffle=True) if CASE != "adam" else None
    loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler, shuffle=sampler is None,
                                         num_workers=2 if CASE == "workers" else 0)
    accumulate = 4 if CASE == "accumulation" else 1
    is_armed = CASE == "torn"
    if CASE == "mixed" and DEATHS > 0 and RANK == 1 and LIFE == 0:
        die_after_a_skipped_step(optimizer, run)
    if CASE == "torn" and DEATHS > 0:
        die_within_updates(optimizer, run)
    elif CASE in SHARDED and LIFE % 2 == 0 and LIFE < DEATHS:
        die_within_an_update(optimizer, run)
        is_armed = True
    kinds = " and ".join(sorted(set(run.kinds.values())))
    if RANK == 0 and LIFE == 0:
        print(f"what is kept is {kinds or 'nothing'}", flush=True)
    print(f"rank {RANK} begins life {LIFE} at step {run.step}: {run.recovered}", flush=True)
    epoch = run.epoch
    while run.step < STEPS:
        if sampler is not None:
            sampler.set_epoch(epoch)
        for x, y in run.batches(loader, epoch):
            if run.step >= STEPS:
                break
            if not is_armed:
                arm(LIFE)
                is_armed = True
            if run.step == 5:
                print(f"rank {RANK} has done 5 steps", flush=True)
            is_last_part = (run.batch + 1) % accumulate == 0
            with parallel.no_sync() if not is_last_part else torch.enable_grad():
                with torch.autocast("cpu", torch.bfloat16, enabled=CASE == "mixed"):
                    loss = nn.functional.cross_entropy(parallel(x), y) / accumulate
                if CASE == "mixed" and run.batch % 7 == 3:
                    loss = loss * float("inf")  # a step that GradScaler skips
                scaler.scale(loss).backward()
            if not is_last_part:
                continue
            if CASE == "transformer":
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            # What follows the update belongs to the step, too.
            if not per_epoch:
                scheduler.step()
            ema.update(model)
            average = loss.detach().clone()
            dist.all_reduce(average)
            losses.sum += float(average) if torch.isfinite(average) else 0.0
            losses.draws += float(torch.rand(())) + random.random() + float(numpy.random.rand())
            if run.step % 5 == 4:
                validate(parallel, data, losses)
        if per_epoch:
            scheduler.step()
        epoch += 1
    run.start_step()  # a process that dies here is restarted, skips the loop, and comes to the same end
    state = digest(*model.parameters(), *model.buffers(), *state_in_order(optimizer), *ema.averages, scheduler.state_dict(),
                   scaler.state_dict())
    chance = digest(torch.rand(3), random.random(), numpy.random.rand())
    # Not the sum of losses: a step whose update was complete is done again with the newer parameters.
    own = digest(losses.validations, losses.draws)
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(f"rank {RANK} ends with {state} {chance} {own}", flush=True)
    dist.destroy_process_group()


@torch.no_grad()
def validate(parallel, data, losses):
    parallel.eval()
    x = torch.stack([data.items[i] for i in range(RANK, 96, SIZE)])
    mean = parallel(x).mean()
    dist.all_reduce(mean)
    losses.validations += float(mean)
    parallel.train()
    if RANK == 0 and isinstance(parallel, DistributedDataParallel):  # shards are gathered by all ranks
        torch.save(parallel.state_dict(), os.devnull)
    dist.barrier()


main()
