# SPDX-License-Identifier: BSD-3-Clause
"""How process groups of the backend "ddp" begin, fail and end.

usage: lives.py NAME[,NAME...] [FOLDER]    (functions of this file)
"""
import datetime
import gc
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
SECONDS = datetime.timedelta(seconds=1)


def check_sum(group=None):
    tensor = torch.tensor([float(dist.get_rank(group) + 1)])
    dist.all_reduce(tensor, group=group)
    size = dist.get_world_size(group)
    assert tensor.item() == size * (size + 1) / 2, tensor


def said_by(call, kind=dist.DistBackendError):
    """Returns the message of the error that the call must raise."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("no error")


def found_by_its_name():
    """Nothing is imported: PyTorch finds the package's entry point."""
    assert "ddprun" not in sys.modules
    dist.init_process_group("ddp")
    gc.collect()
    check_sum()
    assert dist.get_backend() == "ddp" and "ddprun.torch" in sys.modules
    dist.destroy_process_group()


def again():
    """A job may destroy its groups and begin again, at the same store."""
    for round in range(4):
        dist.init_process_group("ddp")
        gc.collect()
        groups = [dist.new_group([0, 1]), dist.new_group()]
        for group in groups:
            if dist.get_rank(group) >= 0:
                check_sum(group)
        check_sum()
        if round % 2 == 0:
            dist.destroy_process_group(groups[1])
            check_sum()
        dist.destroy_process_group()
        if VERSION >= (2, 13):  # older ones do not tell a group that it was destroyed
            assert said_by(lambda: groups[1].barrier().wait(), (RuntimeError, ValueError))
    assert threading.active_count() == 1, threading.enumerate()


class FolderStore(dist.Store):
    """A store that libddp cannot open: PyTorch's own, seen through Python."""

    def __init__(self, base):
        super().__init__()
        self.base = base

    def set(self, key, value):
        self.base.set(key, value)

    def get(self, key):
        return self.base.get(key)

    def add(self, key, amount):
        return self.base.add(key, amount)

    def wait(self, keys, *timeout):
        self.base.wait(keys, *timeout)

    def check(self, keys):
        return self.base.check(keys)

    def set_timeout(self, timeout):
        self.base.set_timeout(timeout)


def stores():
    """The ranks meet at any store that PyTorch has."""
    folder = sys.argv[2]

    def meet(store, rank=RANK, size=SIZE):
        dist.init_process_group("ddp", store=store, rank=rank, world_size=size)
        check_sum()
        dist.destroy_process_group()

    meet(dist.FileStore(os.path.join(folder, "file"), SIZE))
    meet(dist.PrefixStore("a/b", dist.PrefixStore("c", dist.FileStore(os.path.join(folder, "prefixed"), SIZE))))
    meet(FolderStore(dist.FileStore(os.path.join(folder, "python"), SIZE)))
    meet(dist.HashStore(), 0, 1)
    port = dist.FileStore(os.path.join(folder, "port"), SIZE)
    if RANK == 0:
        server = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
        port.set("port", str(server.port))
    store = server if RANK == 0 else dist.TCPStore("127.0.0.1", int(port.get("port")), None, False)
    meet(store)
    meet(store)
    port.set(f"done {RANK}", "")
    port.wait([f"done {rank}" for rank in range(SIZE)])


def beside_gloo():
    """Groups of ours beside a default group of Gloo's: of all pairs, and in another order than the ranks'."""
    import ddprun.torch  # noqa: F401

    dist.init_process_group("gloo")
    for one in range(SIZE):
        for other in range(one + 1, SIZE):
            group = dist.new_group([one, other], backend="ddp")
            if RANK in (one, other):
                check_sum(group)
    if VERSION >= (2, 14):
        backwards = dist.new_group(list(reversed(range(SIZE))), backend="ddp", sort_ranks=False)
        assert dist.get_rank(backwards) == SIZE - 1 - RANK
        tensor = torch.tensor([float(RANK)])
        dist.broadcast(tensor, SIZE - 1, group=backwards)
        assert tensor.item() == SIZE - 1
    dist.barrier()
    dist.destroy_process_group()


def refused():
    """What the backend does not take is refused in words that say what to do."""
    dist.init_process_group("ddp")
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    said = said_by(lambda: backend.allreduce([torch.empty(1, device="meta")]), ValueError)
    assert "'ddp' takes tensors in the memory of the CPU only, but one is on meta" in said, said

    class OnGpu(torch.Tensor):
        is_cpu = property(lambda self: False)
        device = property(lambda self: torch.device("cuda", 0))

    said = said_by(lambda: backend.allreduce([torch.zeros(1).as_subclass(OnGpu)]), ValueError)
    assert 'one is on cuda:0: start with init_process_group("cpu:ddp,cuda:nccl")' in said, said
    said = said_by(lambda: dist.all_reduce(torch.eye(2).to_sparse()), ValueError)
    assert "takes dense tensors only" in said and '"gloo"' in said, said
    said = said_by(lambda: backend.allreduce([torch.zeros(1), torch.zeros(1)]), ValueError)
    assert "takes one tensor" in said, said
    dist.barrier()
    dist.destroy_process_group()


def beside_another_devices_backend():
    """The backend is one device's in a group that has another backend for GPUs: PyTorch 2.14 and newer."""
    if VERSION < (2, 14):
        return
    dist.init_process_group("cpu:ddp,cuda:gloo")  # NCCL's needs a GPU
    check_sum()
    dist.barrier()
    backends = [dist.group.WORLD._get_backend(torch.device(device)).name() for device in ("cpu", "cuda")]
    assert backends == ["ddp", "gloo"], backends
    dist.destroy_process_group()


def old_calls():
    """PyTorch before 2.13 leaves options out, and calls a group's methods with a tensor alone."""
    dist.init_process_group("ddp")
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    tensor = torch.ones(2)
    backend.allreduce([tensor]).wait()
    output = [torch.zeros(2) for _ in range(SIZE)]
    backend.allgather([output], [tensor]).wait()
    backend.barrier().wait()
    assert output[0].tolist() == [SIZE, SIZE]
    dist.destroy_process_group()


def timeouts():
    """An operation that other ranks do not join ends with the timeout, and says so."""
    dist.init_process_group("ddp", timeout=30 * SECONDS)
    dist.barrier()
    group = dist.new_group(timeout=1 * SECONDS)
    if RANK == 0:
        begin = time.monotonic()
        said = said_by(lambda: dist.all_reduce(torch.ones(1), group=group))
        assert time.monotonic() - begin < 10 and "1 s" in said, said
        assert "aborted" in said_by(lambda: dist.all_reduce(torch.ones(1), group=group))
    monitored = dist.new_group(timeout=1 * SECONDS)
    if VERSION >= (2, 14) and RANK == 0:
        said = said_by(lambda: dist.monitored_barrier(monitored, SECONDS, wait_all_ranks=True))
        assert "rank 1" in said or "ranks 1" in said, said
    check_sum()
    dist.destroy_process_group()


def dead_peer():
    """A rank that dies is named to the others."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher's
    dist.init_process_group("ddp")
    check_sum()
    store = dist.distributed_c10d._get_default_store()
    if RANK == 1:
        store.get("rank 0 is out of it")
        os.kill(os.getpid(), signal.SIGKILL)
    store.set("rank 0 is out of it", "")
    print("rank 0 got:", said_by(lambda: dist.all_reduce(torch.ones(1))), flush=True)


def ends_without_destroy():
    """A script that does not destroy its groups ends as well."""
    dist.init_process_group("ddp")
    check_sum()
    work = dist.irecv(torch.zeros(1), 1 - RANK) if RANK == 0 else dist.isend(torch.zeros(1), 0)
    work.wait()
    assert work.is_completed() and work.wait()


def profiled():
    """PyTorch's profiler has an event for each operation, with the shapes of its input."""
    dist.init_process_group("ddp")
    with torch.profiler.profile(record_shapes=True) as profile:
        dist.all_reduce(torch.ones(3))
        dist.all_gather([torch.ones(2) for _ in range(SIZE)], torch.ones(2))
        dist.barrier()
        message = torch.ones(5)
        (dist.send if RANK == 0 else dist.recv)(message, 1 - RANK)
    events = [(event.name, event.input_shapes) for event in profile.events() if event.name.startswith("ddp:")]
    said = ("ddp:send" if RANK == 0 else "ddp:recv", [[5]])
    assert events == [("ddp:all_reduce", [[3]]), ("ddp:all_gather", [[2]]), ("ddp:barrier", []), said], events
    dist.destroy_process_group()


def gloo_is_served():
    """After serve_gloo() "gloo" is ours, and PyTorch's Gloo does what ours does not."""
    import ddprun.torch

    ddprun.torch.serve_gloo()
    dist.init_process_group("gloo")
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert type(backend).__module__.startswith("ddprun."), type(backend)
    check_sum()
    tensor = torch.eye(2).to_sparse()
    dist.all_reduce(tensor)
    assert tensor.to_dense().tolist() == [[SIZE, 0], [0, SIZE]]
    assert dist.get_backend() == "gloo"
    dist.monitored_barrier()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    model(torch.ones(1, 2)).sum().backward()
    group = dist.new_group([0, 1], backend="gloo")
    if RANK < 2:
        check_sum(group)
    dist.destroy_process_group()


if __name__ == "__main__":
    names = sys.argv[1].split(",")
    if names != ["found_by_its_name"]:
        import ddprun.torch  # noqa: F401  for PyTorch before 2.14
    for name in names:
        globals()[name]()
        print(f"{name}: rank {RANK} done", flush=True)
