# SPDX-License-Identifier: BSD-3-Clause
"""A table of hangs. Each is a round of one job: ddprun finds that it makes no progress, restarts it, and the next round
hangs in the next way.

A case says which ranks are the culprits. The line at which the first of them stands ends with "# here: NAME OF THE CASE".
In most cases the others wait in an all_reduce of Gloo's; in those of groups all ranks call the case, with the backend
"ddp". Each takes some seconds: every fourth is run, and with DDPRUN_HANGS=all all of them are.
"""
import asyncio
import fcntl
import itertools
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


def case_of_groups(culprits, verdict):
    def add(function):
        function.is_of_groups = True
        return case(culprits, verdict)(function)
    return add


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
        time.sleep(EVER)


@case()
def loader_process():
    for _ in torch.utils.data.DataLoader(Data(), num_workers=1):  # here: loader_process
        pass


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


if os.environ.get("DDPRUN_HANGS") != "all":
    CASES = CASES[::4]


def main():
    rank, number = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if number == len(CASES):
        return  # the round after the last case
    name, hang, culprits, _ = CASES[number]
    is_of_groups = hasattr(hang, "is_of_groups")
    if is_of_groups:
        import ddprun.torch  # noqa: F401  (before PyTorch 2.14 it makes the backend known)
    dist.init_process_group("ddp" if is_of_groups else "gloo")
    dist.barrier()
    if is_of_groups:
        hang(rank)
    elif rank in culprits:
        hang()
    dist.all_reduce(torch.ones(10))
    dist.barrier()
    sys.exit(f"{name} did not hang")


if __name__ == "__main__":
    main()
