# SPDX-License-Identifier: BSD-3-Clause
"""One process with two Gloos, torch.distributed's and libddp's, which take turns in the same job.

    beside_torch_worker.py path/to/libddp.so torch|libddp      which library is loaded and used first
"""
import ctypes
import os
import sys


class Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("index", ctypes.c_int32)]


class Buffer(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("count", ctypes.c_size_t), ("dtype", ctypes.c_int32), ("device", Device)]


class Reduction(ctypes.Structure):
    _fields_ = [("op", ctypes.c_int32), ("factor", ctypes.c_double)]


class Operation(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("kind", ctypes.c_int32), ("root", ctypes.c_int32), ("tag", ctypes.c_uint32),
        ("wait_all_ranks", ctypes.c_int32), ("timeout_ms", ctypes.c_int64), ("input", Buffer), ("output", Buffer),
        ("reduction", Reduction), ("unused", ctypes.c_void_p * 7),
    ]


class Libddp:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.ddp_error_last.restype = ctypes.c_char_p
        self.library.ddp_session_world.restype = ctypes.c_void_p
        self.library.ddp_session_world.argtypes = [ctypes.c_void_p]
        self.library.ddp_session_destroy.argtypes = [ctypes.c_void_p]
        self.library.ddp_issue.argtypes = [ctypes.c_void_p, ctypes.POINTER(Operation), ctypes.c_void_p]
        self.session = ctypes.c_void_p()
        self.check(self.library.ddp_session_init(None, ctypes.byref(self.session)))
        self.world = self.library.ddp_session_world(self.session)

    def check(self, status):
        assert status == 0, self.library.ddp_error_last().decode()

    def sum(self, value, count):
        values = (ctypes.c_float * count)(*[value] * count)
        buffer = Buffer(ctypes.addressof(values), count, 0, Device(0, 0))
        operation = Operation(ctypes.sizeof(Operation), 0, 0, 0, 0, 60_000, Buffer(), buffer)  # an all_reduce, a sum
        self.check(self.library.ddp_issue(self.world, operation, None))
        assert len(set(values)) == 1, "the elements differ"
        return values[0]

    def end(self):
        self.library.ddp_session_destroy(self.session)


class Torch:
    def __init__(self):
        global torch
        import torch.distributed

        torch.distributed.init_process_group("gloo")

    def sum(self, value, count):
        values = torch.full((count,), float(value))
        torch.distributed.all_reduce(values)
        assert values.eq(values[0]).all(), "the elements differ"
        return values[0].item()

    def end(self):
        torch.distributed.destroy_process_group()


path, first = sys.argv[1:]
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
expected = size * (size + 1) / 2
libraries = []
for load in [Torch, lambda: Libddp(path)] if first == "torch" else [lambda: Libddp(path), Torch]:
    libraries.append(load())
    assert libraries[-1].sum(rank + 1, 1000) == expected  # also before the other one exists
for count in 1, 1000, 1_000_000:
    for library in libraries:
        assert library.sum(rank + 1, count) == expected, (library, count)
for library in libraries:
    library.end()
print(f"rank {rank} of {size} done, {first} first", flush=True)
