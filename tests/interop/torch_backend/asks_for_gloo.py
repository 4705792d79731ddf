# SPDX-License-Identifier: BSD-3-Clause
"""Scripts that ask torch.distributed for "gloo" and know of nothing else.

usage: asks_for_gloo.py NAME [WORD]    (functions of this file)

Each prints "RANK NAME: ..." lines. The module that serves "gloo" is among them.
"""
import os
import sys


def served_by(group=None, device="cpu"):
    import torch
    import torch.distributed as dist

    kind = type((group or dist.group.WORLD)._get_backend(torch.device(device)))
    return kind.__module__.partition(".")[0]


def say(what):
    # One write: processes that a worker spawns share its pipe.
    sys.stdout.write(f"{os.environ['RANK']} {sys.argv[1]}: {what}\n")
    sys.stdout.flush()


class Rows:
    """A data set that the processes of a DataLoader can get."""

    def __len__(self):
        return 32

    def __getitem__(self, row):
        import torch

        generator = torch.Generator().manual_seed(row)
        return torch.randn(8, generator=generator), torch.randn(1, generator=generator)


def train():
    """Trains with DistributedDataParallel and DataLoader processes, started as WORD says (fork, spawn), and prints the
    losses to the last bit."""
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, DistributedSampler

    dist.init_process_group("gloo")
    torch.manual_seed(7)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    loader = DataLoader(Rows(), 4, sampler=DistributedSampler(Rows(), shuffle=False), num_workers=1,
                        multiprocessing_context=sys.argv[2])
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
    say(" ".join(losses))
    say(f"served by {served_by()}")
    dist.destroy_process_group()


def groups():
    """Makes groups in every way that names gloo, and does what only PyTorch's own Gloo does."""
    import torch
    import torch.distributed as dist

    def check(group=None):
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [dist.get_world_size(group)] * 3, tensor

    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "cpu:gloo,cuda:gloo")
    check()
    pair = dist.new_group([0, 1], backend="gloo")
    check(pair)
    sparse = torch.eye(2).to_sparse()
    dist.all_reduce(sparse)
    assert sparse.to_dense().tolist() == [[2, 0], [0, 2]], sparse
    assert dist.get_backend(pair) == "gloo" and dist.Backend("gloo") == "gloo" and dist.is_gloo_available()
    say(f"served by {served_by()} {served_by(pair)}")
    dist.destroy_process_group()
    dist.init_process_group("gloo")
    check()
    dist.destroy_process_group()


def no_group():
    """Needs no group, and finds what it would find without the option."""
    assert not [module for module in sys.modules if module.partition(".")[0] in ("torch", "ddprun")]
    assert not any(entry.startswith("/proc/") for entry in sys.path), sys.path
    import sitecustomize

    say(sitecustomize.WORDS)


def child(rank, folder):
    import torch
    import torch.distributed as dist

    store = dist.FileStore(os.path.join(folder, "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == 2
    say(f"served by {served_by()}")
    dist.destroy_process_group()


def spawns():
    """Starts its ranks itself."""
    import torch.multiprocessing

    torch.multiprocessing.spawn(child, (sys.argv[2],), 2)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
