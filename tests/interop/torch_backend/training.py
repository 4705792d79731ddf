# SPDX-License-Identifier: BSD-3-Clause
"""Programs that train: each takes a group and returns losses and weights, which must be those of Gloo.

With two ranks a sum has one order, so that everything is equal. With more, results are rounded to 5 digits.
"""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP

SAME = []
VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


def same(program):
    SAME.append(program)
    return program


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)
        self.unused = nn.Linear(3, 3)

    def forward(self, x, with_unused=False):
        y = self.last(torch.relu(self.norm(self.first(x))))
        return y + self.unused(x[:, :3]).sum() * 0.1 if with_unused else y


def rounded(group, tensor):
    tensor = tensor.detach().clone()
    return tensor if dist.get_world_size(group) == 2 else (tensor * 1e5).round() / 1e5


def batch(group, step):
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank(group))
    return torch.randn(4, 8, generator=generator)


def train(group, model, optimizer, forward=None, steps=4):
    """Returns the losses and the weights."""
    losses = []
    for step in range(steps):
        x = batch(group, step)
        loss = (forward(model, x, step) if forward else model(x)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(rounded(group, loss))
    return losses, [rounded(group, parameter.float()) for parameter in model.parameters()]


def net():
    torch.manual_seed(1)
    return Net()


def sgd(model):
    return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


class Small(nn.Sequential):
    def __init__(self):
        torch.manual_seed(1)
        super().__init__(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


@same
def ddp_plain(group):
    model = DDP(Small(), process_group=group)
    return train(group, model, sgd(model))


@same
def ddp_unused_parameters_of_some_ranks(group):
    model = DDP(net(), process_group=group, find_unused_parameters=True)
    forward = lambda model, x, step: model(x, (step + dist.get_rank(group)) % 2 == 0)  # noqa: E731
    return train(group, model, sgd(model), forward)


@same
def ddp_small_buckets_and_uneven_start(group):
    torch.manual_seed(dist.get_rank(group))  # the constructor broadcasts rank 0's weights
    model = DDP(nn.Sequential(nn.Linear(8, 300), nn.Linear(300, 4)), process_group=group, bucket_cap_mb=0.001,
                gradient_as_bucket_view=True)
    return train(group, model, sgd(model))


@same
def ddp_no_sync(group):
    model = DDP(Small(), process_group=group)
    with model.no_sync():
        model(batch(group, 9)).sum().backward()
    model(batch(group, 8)).sum().backward()
    return [rounded(group, parameter.grad) for parameter in model.parameters()]


@same
def ddp_bf16_hook(group):
    model = DDP(Small(), process_group=group)
    model.register_comm_hook(group, default_hooks.bf16_compress_hook)
    return train(group, model, sgd(model))[0] if dist.get_world_size(group) == 2 else None


@same
def ddp_python_hook(group):
    def hook(state, bucket):
        half = bucket.buffer() / 2
        work = dist.all_reduce(half, group=state, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    model = DDP(Small(), process_group=group)
    model.register_comm_hook(group, hook)
    return train(group, model, sgd(model))


@same
def ddp_join_of_uneven_inputs(group):
    model = DDP(Small(), process_group=group)
    with model.join():
        for step in range(2 + dist.get_rank(group)):
            model(batch(group, step)).sum().backward()
    return [rounded(group, parameter.grad) for parameter in model.parameters()]


@same
def zero_redundancy_optimizer(group):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DDP(Small(), process_group=group)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, process_group=group, lr=0.01)
    return train(group, model, optimizer)


@same
def sync_batch_norm_buffers(group):
    model = DDP(net(), process_group=group, find_unused_parameters=True)
    train(group, model, sgd(model))
    return rounded(group, model.module.norm.running_mean)


@same
def fsdp1(group):
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    model = FSDP(Small(), process_group=group, device_id=torch.device("cpu"), use_orig_params=True)
    losses, _ = train(group, model, sgd(model))
    with FSDP.summon_full_params(model):
        return losses, [rounded(group, parameter) for parameter in model.parameters()]


def mesh_of(group):
    from torch.distributed.device_mesh import DeviceMesh

    return DeviceMesh.from_group(group, "cpu")


@same
def fsdp2(group):
    if VERSION < (2, 6):
        return None
    from torch.distributed.fsdp import fully_shard

    model = Small()
    fully_shard(model[0], mesh=mesh_of(group))
    fully_shard(model, mesh=mesh_of(group))
    losses, _ = train(group, model, sgd(model))
    return losses, [rounded(group, parameter.full_tensor()) for parameter in model.parameters()]


@same
def dtensor(group):
    if VERSION < (2, 6):
        return None
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = mesh_of(group)
    whole = torch.arange(8.0 * 12).view(8, 12)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    other = sharded.redistribute(mesh, [Shard(1)])
    product = sharded @ distribute_tensor(whole.t().contiguous(), mesh, [Replicate()])
    return other.to_local(), product.full_tensor(), sharded.sum().full_tensor()


@same
def tensor_parallel(group):
    if VERSION < (2, 6):
        return None
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = parallelize_module(Small(), mesh_of(group), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = torch.arange(32.0).view(4, 8) / 32
    losses = []
    optimizer = sgd(model)
    for _ in range(3):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(rounded(group, loss))
    return losses, [rounded(group, parameter.full_tensor()) for parameter in model.parameters()]


@same
def functional_collectives(group):
    import torch.distributed._functional_collectives as functional

    given = torch.arange(4.0) + dist.get_rank(group)
    return (functional.all_reduce(given, "sum", group) + 0, functional.all_gather_tensor(given, 0, group) + 0,
            functional.reduce_scatter_tensor(given.repeat(dist.get_world_size(group)), "sum", 0, group) + 0,
            functional.broadcast(given, 0, group) + 0)


@same
def differentiable_collectives(group):
    import torch.distributed.nn.functional as functional

    given = (torch.arange(4.0) + dist.get_rank(group)).requires_grad_()
    torch.stack(functional.all_gather(functional.all_reduce(given * 2, group=group), group=group)).sum().backward()
    return given.grad


@same
def device_mesh_of_two_dimensions(group):
    """The mesh makes groups of its own, with the backend of the default group: the same in both calls."""
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("outer", "inner"))
    found = []
    for name in ("outer", "inner"):
        tensor = torch.tensor([float(dist.get_rank())])
        dist.all_reduce(tensor, group=mesh.get_group(name))
        found.append(tensor)
    return found
