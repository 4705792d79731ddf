#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""ddp::FileStore and torch.distributed.FileStore write the same bytes and share files.

usage: test_file_store.py LIBDDP_SO
"""
import multiprocessing
import os
import sys
import tempfile
from datetime import timedelta

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
import torch.distributed as dist  # noqa: E402

from ddp_store import DdpError, Library  # noqa: E402

PROCESSES, EACH = 4, 50


def script(store):
    """Makes every call that both have, except delete_key of a missing key, for which libddp writes nothing."""
    store.set("k", b"\x00v")
    seen = [store.get("k"), store.add("n", 5), store.add("n", -7), store.compare_set("c", "old", "new"),
            store.compare_set("c", "", "first"), store.compare_set("c", "xx", "yy"),
            store.compare_set("c", "first", "second"), store.num_keys(), store.delete_key("k"), store.num_keys()]
    for name in ("append", "multi_set", "barrier"):  # newer than PyTorch 2.2
        if hasattr(dist.FileStore, name):
            seen.append(getattr(store, name)(*{"append": ("log", "one"), "multi_set": (["a", "b"], ["1", ""]),
                                               "barrier": ("all", 1)}[name]))
    return seen


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def same_bytes(library, folder):
    ours, theirs = os.path.join(folder, "ours"), os.path.join(folder, "theirs")
    # With both, a second store keeps the file alive when the first ends.
    store, keep_ours = library.file(ours, 2), library.file(ours, 2)
    torch_store, keep_theirs = dist.FileStore(theirs, 2), dist.FileStore(theirs, 2)
    assert script(store) == script(torch_store)
    assert contents(ours) == contents(theirs), (contents(ours), contents(theirs))
    store.close()
    del torch_store
    assert contents(ours) == contents(theirs), (contents(ours), contents(theirs))
    keep_ours.close()
    del keep_theirs
    assert not os.path.exists(ours) and not os.path.exists(theirs)
    print("ok   the same calls leave the same bytes, and the last to end removes the file")


def shared(library, folder):
    for last in ("ours", "torch"):
        path = os.path.join(folder, f"shared, {last} ends last")
        ours, torch = library.file(path, 2), dist.FileStore(path, 2)
        ours.set("from ours", "a")
        torch.set("from torch", "b")
        assert (torch.get("from ours"), ours.get("from torch")) == (b"a", b"b")
        assert (ours.add("n", 1), torch.add("n", 1), ours.get("n")) == (1, 2, b"2")
        assert torch.delete_key("from ours") and not ours.check(["from ours"])
        assert ours.delete_key("from torch") and ours.num_keys() == torch.num_keys()
        library.prefix("p", ours).set("k", "v")
        assert dist.PrefixStore("p", torch).get("k") == b"v"
        if last == "ours":
            del torch
            ours.close()
        else:
            ours.close()
            del torch
        assert not os.path.exists(path), contents(path)
    print("ok   libddp's store and torch's share a file, whichever ends last")


def count(store):
    for _ in range(EACH):
        store.add("n", 1)
    store.add("ended", 1)


def many_processes(library, folder):
    path = os.path.join(folder, "many")
    keep = library.file(path, -1)
    kinds = ("ours", "torch") * (PROCESSES // 2)
    processes = multiprocessing.get_context("fork")
    workers = [processes.Process(target=lambda kind=kind: count(
        library.file(path, -1) if kind == "ours" else dist.FileStore(path, -1))) for kind in kinds]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * PROCESSES
    assert keep.get("n") == str(PROCESSES * EACH).encode(), keep.get("n")
    keep.close()
    print(f"ok   {PROCESSES} processes, ours and torch's in turn, add {PROCESSES * EACH} times and lose none")


def repaired(library, folder):
    path = os.path.join(folder, "cut")
    store = library.file(path, -1)
    store.set("k", "v")
    whole = contents(path)
    with open(path, "ab") as file:
        file.write(b"\x02\x00\x00\x00/k\x05\x00\x00\x00half")
    assert store.get("k") == b"v"
    store.set("k", "new")  # cuts off the bytes with which every torch reader spins forever
    assert contents(path) == whole + b"\x02\x00\x00\x00/k\x03\x00\x00\x00new"
    assert dist.FileStore(path, -1).get("k") == b"new"
    print("ok   torch reads a file whose half record ours has cut off")


def without_queues(library, folder):
    store = library.file(os.path.join(folder, "queues"), 1)
    try:
        store.queue_push("q", "v")
        sys.exit("a file store took a queue_push")
    except DdpError as error:
        assert error.status == "invalid argument", error
    if hasattr(dist.Store, "queue_push"):
        try:
            dist.FileStore(os.path.join(folder, "torch's queues"), 1).queue_push("q", "v")
            sys.exit("torch's FileStore has queues now: so should ours")
        except NotImplementedError:
            pass
    print("ok   neither has queues")


def main():
    library = Library(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        for check in (same_bytes, shared, many_processes, repaired, without_queues):
            check(library, folder)


if __name__ == "__main__":
    sys.exit(main())
