# SPDX-License-Identifier: BSD-3-Clause
"""A worker that uses features that fork, start threads or connect to other processes, one after the
other.

usage: preload_user.py [compile]
"""
import os
import sys

import torch
import torch.multiprocessing
from torch.distributed import rpc
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Numbers(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.tensor([index, get_worker_info().id, get_worker_info().seed])


def loaded(start):
    loader = DataLoader(Numbers(), batch_size=2, num_workers=2, persistent_workers=True, pin_memory=False,
                        multiprocessing_context=start)
    for _ in range(2):
        items = torch.cat(list(loader))
        assert sorted(items[:, 0].tolist()) == list(range(12)), items
        assert set(items[:, 1].tolist()) == {0, 1} and len(set(items[:, 2].tolist())) == 2, items


def fill(index, shared):
    shared[index] = index + torch.get_num_threads()


def shares_tensors():
    shared = torch.zeros(2, dtype=torch.int64).share_memory_()
    torch.multiprocessing.spawn(fill, args=(shared,), nprocs=2)
    assert (shared - torch.arange(2)).min() >= 1, shared


def calls_remotely(rank, world):
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{os.environ['RPC_PORT']}")
    rpc.init_rpc(f"worker {rank}".replace(" ", ""), rank=rank, world_size=world, rpc_backend_options=options)
    answer = rpc.rpc_sync(f"worker{(rank + 1) % world}", torch.add, args=(torch.ones(2), rank))
    assert answer.eq(1 + rank).all(), answer
    rpc.shutdown()


def compiles():
    def double(x):
        return torch.nn.functional.relu(x) * 2

    x = torch.linspace(-1, 1, 64)
    assert torch.equal(torch.compile(double)(x), double(x))


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    loaded("fork")
    if rank == 0:  # each process that is spawned imports PyTorch
        loaded("spawn")
        shares_tensors()
    if "compile" in sys.argv:
        compiles()
    if "RPC_PORT" in os.environ:
        calls_remotely(rank, world)
    print(f"rank {rank} used everything", flush=True)


if __name__ == "__main__":
    main()
