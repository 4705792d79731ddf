# SPDX-License-Identifier: BSD-3-Clause
"""A table of hangs. Each is a round of one job: ddprun finds that it makes no progress, restarts it, and the next round
hangs in the next way.

A case says which ranks are the culprits. The line at which the first of them stands ends with "# here: NAME OF THE CASE";
where another thread or process of that rank is what it waits for, that one's line ends with "# there: NAME OF THE CASE".
In most cases the others wait in an all_reduce of Gloo's; in those of groups all ranks call the case, with the backend
"ddp". Each takes some seconds: some are run, and with DDPRUN_HANGS=all all of them are, on one node and on two.
"""
import asyncio
import fcntl
import itertools
import multiprocessing
import os
import queue
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist

CASES = []
EVER = 100_000


def case(culprits=(2,), verdict="outside"):
    def add(function):
        CASES.append((function.__name__, function, culprits, verdict))
        return function
    return add


def case_of_all(culprits, verdict, backend="gloo"):
    """All ranks call it."""
    def add(function):
        function.backend = backend
        return case(culprits, verdict)(function)
    return add


def case_of_groups(culprits, verdict):
    return case_of_all(culprits, verdict, backend="ddp")


@case()
def endless_loop():
    while True: pass  # noqa: E701  # here: endless_loop


@case()
def asleep():
    time.sleep(EVER)  # here: asleep


@case(verdict="stopped")
def stopped():
    os.kill(os.getpid(), signal.SIGSTOP)  # here: stopped


@case()
def reads_a_pipe():
    os.read(os.pipe()[0], 1)  # here: reads_a_pipe


@case()
def reads_a_socket():
    one, other = socket.socketpair()
    one.recv(1)  # here: reads_a_socket


@case()
def accepts():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.accept()  # here: accepts


@case()
def polls():
    select.select([os.pipe()[0]], [], [])  # here: polls


@case()
def empty_queue():
    queue.Queue().get()  # here: empty_queue


@case()
def deadlock_of_threads():
    first, second, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def other():
        with second:
            both.wait()
            first.acquire()
    threading.Thread(target=other, daemon=True).start()
    with first:
        both.wait()
        second.acquire()  # here: deadlock_of_threads


@case()
def joins_a_thread():
    thread = threading.Thread(target=time.sleep, args=(EVER,), daemon=True)
    thread.start()
    thread.join()  # here: joins_a_thread


@case()
def condition():
    changed = threading.Condition()
    with changed:
        changed.wait()  # here: condition


@case()
def locked_file():
    with tempfile.NamedTemporaryFile() as one, open(one.name) as two:
        fcntl.flock(one, fcntl.LOCK_EX)
        fcntl.flock(two, fcntl.LOCK_EX)  # here: locked_file


@case()
def waits_for_a_process():
    subprocess.run(["sleep", str(EVER)])  # here: waits_for_a_process


@case()
def waits_for_a_file():
    while not os.path.exists("/never/there"):
        time.sleep(0.05)  # here: waits_for_a_file


@case()
def waits_for_a_signal():
    signal.pause()  # here: waits_for_a_signal


@case()
def busy_in_c():
    sum(itertools.repeat(0))  # here: busy_in_c


@case()
def regular_expression():
    re.match("(a*)*b", "a" * 64)  # here: regular_expression


@case()
def event_loop():
    asyncio.run(asyncio.sleep(EVER))  # here: event_loop


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        time.sleep(EVER)  # there: loader_process


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield 1
        os.read(os.pipe()[0], 1)  # there: loader_of_a_stream


@case()
def loader_process():
    for _ in torch.utils.data.DataLoader(Data(), num_workers=1):  # here: loader_process
        pass


@case()
def loader_of_a_stream():
    for _ in torch.utils.data.DataLoader(Stream(), num_workers=2, batch_size=None):  # here: loader_of_a_stream
        pass


def waits_in_child(queue_of_parent):
    queue_of_parent.get()  # there: waits_for_a_child


@case()
def waits_for_a_child():
    context = multiprocessing.get_context("fork")
    child = context.Process(target=waits_in_child, args=(context.Queue(),), daemon=True)
    child.start()
    child.join()  # here: waits_for_a_child


def sleeps_in_pool(number):
    time.sleep(EVER)  # there: pool_of_processes


@case()
def pool_of_processes():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(sleeps_in_pool, range(2))  # here: pool_of_processes


@case()
def uninterruptible():
    """In state D: the kernel lets a parent wait for its child to execute a program, which waits for a writer here."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkfifo(folder + "/fifo")
        wait = (os.POSIX_SPAWN_OPEN, 0, folder + "/fifo", os.O_RDONLY, 0)
        os.posix_spawn("/bin/true", ["true"], {}, file_actions=[wait])  # here: uninterruptible


def hook_that_sleeps(gradient):
    time.sleep(EVER)  # there: backward_in_a_thread


@case()
def backward_in_a_thread():
    weights = torch.ones(3, requires_grad=True)
    weights.register_hook(hook_that_sleeps)
    backward = threading.Thread(target=weights.sum().backward, daemon=True)
    backward.start()
    backward.join()  # here: backward_in_a_thread


@case_of_all(culprits=(2,), verdict="outside")
def backward_that_reduces(rank):
    def hook(gradient):
        if rank == 2:
            time.sleep(EVER)  # there: backward_that_reduces
        dist.all_reduce(gradient)
    weights = torch.ones(3, requires_grad=True)
    weights.register_hook(hook)
    backward = threading.Thread(target=weights.sum().backward, daemon=True)
    backward.start()
    backward.join()  # here: backward_that_reduces


@case()
def swallowed_error():
    try:
        raise RuntimeError("lost")
    except RuntimeError:
        threading.Event().wait()  # here: swallowed_error


@case(culprits=(0,))
def rank_0_writes():
    os.read(os.pipe()[0], 1)  # here: rank_0_writes


@case(culprits=(1, 2))
def two_ranks():
    time.sleep(EVER)  # here: two_ranks


@case(verdict="elsewhere")
def other_collective():
    dist.broadcast(torch.ones(7), src=0)  # here: other_collective


@case(verdict="elsewhere")
def one_more_collective():
    dist.all_reduce(torch.ones(10))
    dist.all_reduce(torch.ones(10))  # here: one_more_collective


@case(verdict="elsewhere")
def receives_from_nobody():
    dist.recv(torch.ones(10), src=0)  # here: receives_from_nobody


@case(verdict="elsewhere")
def waits_for_a_key():
    dist.distributed_c10d._get_default_store().get("never set")  # here: waits_for_a_key


def world(rank):
    dist.all_reduce(torch.ones(10))


@case_of_groups(culprits=(3,), verdict="awaited")
def one_after_the_other(rank):
    pair = dist.new_group([0, 1])
    if rank == 0:
        dist.all_reduce(torch.ones(10), group=pair)
    elif rank < 3:
        dist.recv(torch.ones(10), src=rank + 1)
    time.sleep(EVER)  # here: one_after_the_other


@case_of_groups(culprits=(1,), verdict="awaited")
def in_another_group(rank):
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    if rank == 1:
        dist.distributed_c10d._get_default_store().get("never set")  # here: in_another_group
    dist.reduce_scatter_tensor(torch.ones(5), torch.ones(10), group=halves[rank // 2])
    world(rank)


@case_of_groups(culprits=(2, 3), verdict="deadlock")
def groups_in_another_order(rank):
    groups = [dist.new_group([2, 3]), dist.new_group([2, 3])]
    if rank == 2:
        dist.all_reduce(torch.ones(10), group=groups[0])  # here: groups_in_another_order
    if rank == 3:
        dist.all_reduce(torch.ones(10), group=groups[1])
    world(rank)


@case_of_groups(culprits=(0, 1), verdict="deadlock")
def both_receive(rank):
    if rank < 2:
        dist.recv(torch.ones(10), src=1 - rank)  # here: both_receive
    world(rank)


@case_of_groups(culprits=(1,), verdict="awaited")
def loads_while_a_message_is_awaited(rank):
    request = dist.irecv(torch.ones(10), src=(rank + 1) % 4)  # nobody waits for it yet
    if rank == 1:
        queue.Queue().get()  # here: loads_while_a_message_is_awaited
    world(rank)
    request.wait()


def pipeline(rank, late, loads):
    """Each stage gets activations from the one before, and gives them to the next; `late` never has any to give."""
    if rank > 0 and rank != late:
        dist.recv(torch.ones(10), src=rank - 1)
    if rank == late:
        loads()
    if rank < 3:
        dist.send(torch.ones(10), dst=rank + 1)
    world(rank)


@case_of_groups(culprits=(0,), verdict="awaited")
def first_stage_of_a_pipeline(rank):
    pipeline(rank, 0, lambda: queue.Queue().get())  # here: first_stage_of_a_pipeline


@case_of_groups(culprits=(2,), verdict="awaited")
def stage_of_a_pipeline(rank):
    pipeline(rank, 2, lambda: select.select([os.pipe()[0]], [], []))  # here: stage_of_a_pipeline


@case_of_groups(culprits=(1, 2), verdict="deadlock")
def stages_in_another_order(rank):
    if rank == 1:
        dist.recv(torch.ones(10), src=2)  # here: stages_in_another_order
    if rank == 2:
        dist.recv(torch.ones(10), src=1)
    if rank in (0, 3):
        dist.recv(torch.ones(10), src=1 if rank == 0 else 2)


@case_of_groups(culprits=(3,), verdict="awaited")
def tensor_and_data_parallel(rank):
    tensor = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    data = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    if rank == 3:
        time.sleep(EVER)  # here: tensor_and_data_parallel
    dist.all_reduce(torch.ones(10), group=tensor[rank // 2])
    dist.all_reduce(torch.ones(10), group=data[rank % 2])


@case_of_groups(culprits=(1,), verdict="awaited")
def tensor_parallel_within_a_pipeline(rank):
    tensor = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    if rank == 1:
        threading.Event().wait()  # here: tensor_parallel_within_a_pipeline
    if rank == 3:
        dist.recv(torch.ones(10), src=1)
    dist.all_reduce(torch.ones(10), group=tensor[rank // 2])


@case_of_groups(culprits=(0,), verdict="awaited")
def root_of_a_broadcast(rank):
    if rank == 0:
        os.read(os.pipe()[0], 1)  # here: root_of_a_broadcast
    dist.broadcast(torch.ones(10), src=0)


@case_of_groups(culprits=(3,), verdict="awaited")
def experts_in_all_to_all(rank):
    if rank == 3:
        threading.Event().wait()  # here: experts_in_all_to_all
    dist.all_to_all_single(torch.ones(4), torch.ones(4))


@case_of_groups(culprits=(2,), verdict="awaited")
def barrier_of_some(rank):
    some = dist.new_group([1, 2, 3])
    if rank == 2:
        signal.pause()  # here: barrier_of_some
    if rank > 0:
        dist.barrier(group=some)
    world(rank)


@case_of_groups(culprits=(1,), verdict="awaited")
def shards_are_gathered(rank):
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    if rank == 1:
        time.sleep(EVER)  # here: shards_are_gathered
    dist.all_gather_into_tensor(torch.ones(20), torch.ones(10), group=pairs[rank // 2])
    world(rank)


@case_of_groups(culprits=(2,), verdict="awaited")
def loader_within_a_group(rank):
    if rank == 2:
        for _ in torch.utils.data.DataLoader(Data(), num_workers=1):  # here: loader_within_a_group
            pass
    world(rank)


@case_of_groups(culprits=(2,), verdict="stopped")
def stopped_in_a_group(rank):
    if rank == 2:
        os.kill(os.getpid(), signal.SIGSTOP)  # here: stopped_in_a_group
    world(rank)


@case_of_groups(culprits=(1,), verdict="awaited")
def backward_that_reduces_in_groups(rank):
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]

    def hook(gradient):
        if rank == 1:
            time.sleep(EVER)  # there: backward_that_reduces_in_groups
        dist.all_reduce(gradient, group=pairs[rank // 2])
        world(rank)
    weights = torch.ones(3, requires_grad=True)
    weights.register_hook(hook)
    backward = threading.Thread(target=weights.sum().backward, daemon=True)
    backward.start()
    backward.join()  # here: backward_that_reduces_in_groups


@case_of_all(culprits=(3,), verdict="ended")
def ended_while_others_wait_for_its_key(rank):
    if rank == 3:
        os._exit(0)  # here: ended_while_others_wait_for_its_key
    dist.distributed_c10d._get_default_store().get("from rank 3")


if os.environ.get("DDPRUN_HANGS") != "all":
    # Few of each kind, and others on two nodes than on one.
    CASES = CASES[::7] if os.environ.get("DDPRUN_HANGS_NODES", "1") == "1" else CASES[3::15]


def main():
    rank, number = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if number == len(CASES):
        return  # the round after the last case
    name, hang, culprits, _ = CASES[number]
    backend = getattr(hang, "backend", None)  # nothing: only the culprits call it
    if backend == "ddp":
        import ddprun.torch  # noqa: F401  (before PyTorch 2.14 it makes the backend known)
    dist.init_process_group(backend or "gloo")
    dist.barrier()
    if backend:
        hang(rank)
    elif rank in culprits:
        hang()
    dist.all_reduce(torch.ones(10))
    dist.barrier()
    sys.exit(f"{name} did not hang")


if __name__ == "__main__":
    main()
