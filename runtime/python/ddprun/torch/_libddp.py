# SPDX-License-Identifier: BSD-3-Clause
"""libddp's C interface, as ctypes sees it: structs, functions and statuses of runtime/include/ddp/c/*.h."""
from __future__ import annotations

import ctypes
import os
import struct
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any, List, NamedTuple, Optional, Tuple

import torch
from torch.distributed import DistBackendError

from ddprun._binary import find_binary, find_library

_SONAME = "libddp.so.1"
_INVALID_ARGUMENT = 1

FLOAT32, FLOAT64, INT32, INT64, UINT8, INT8, INT16, UINT16, UINT32, UINT64, FLOAT16, BFLOAT16 = range(12)
SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)
(ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, GATHER, SCATTER, REDUCE_SCATTER, ALL_TO_ALL, BARRIER, MONITORED_BARRIER,
 SEND, RECV) = range(12)
ANY_RANK = -1

# libddp's type for each of PyTorch's that can be reduced. bool is not among them: its reductions are others.
DTYPES = {
    torch.float32: FLOAT32,
    torch.float64: FLOAT64,
    torch.int32: INT32,
    torch.int64: INT64,
    torch.uint8: UINT8,
    torch.int8: INT8,
    torch.int16: INT16,
    torch.float16: FLOAT16,
    torch.bfloat16: BFLOAT16,
}
for _name, _number in (("uint16", UINT16), ("uint32", UINT32), ("uint64", UINT64)):
    if hasattr(torch, _name):  # PyTorch 2.3 and newer
        DTYPES[getattr(torch, _name)] = _number


class Buffer(ctypes.Structure):
    """ddp_buffer: memory with a type. Does not own it."""

    _fields_ = [
        ("data", c_void_p),
        ("count", c_size_t),
        ("dtype", c_int32),
        ("device_kind", c_int32),
        ("device_index", c_int32),
    ]


Memory = Tuple[int, int, int]  # a ddp_buffer of the CPU: address, elements, type
NO_MEMORY: Memory = (0, 0, 0)


class Reduction(NamedTuple):
    """ddp_reduction: an operation, and its factor."""

    op: int
    factor: float


SUM_OF_ALL = Reduction(SUM, 0.0)


class Work(ctypes.Structure):
    """ddp_work: an asynchronous operation."""

    _fields_ = [("group", c_void_p), ("sequence", c_uint64)]


class SessionOptions(ctypes.Structure):
    """ddp_session_options. Zeros are its defaults."""

    _fields_ = [
        ("size", c_size_t),
        ("backend", c_char_p),
        ("init_timeout_ms", c_int64),
        ("timeout_ms", c_int64),
        ("init_method", c_char_p),
        ("rank", c_int32),
        ("world_size", c_int32),
        ("local_rank", c_int32),
        ("local_world_size", c_int32),
        ("device", c_char_p),
        ("store", c_void_p),
        ("name", c_char_p),
    ]


class GroupOptions(ctypes.Structure):
    """ddp_group_options. Zeros are its defaults."""

    _fields_ = [("size", c_size_t), ("name", c_char_p), ("backend", c_char_p), ("timeout_ms", c_int64)]


class KeepOptions(ctypes.Structure):
    """ddp_keep_options. Zeros are its defaults."""

    _fields_ = [
        ("size", c_size_t), ("record", POINTER(Buffer)), ("record_count", c_size_t), ("layout", c_uint64),
        ("own_bytes", c_size_t), ("own_layout", c_uint64),
    ]


# Arguments of the functions that return a ddp_status.
_CALLS: "dict[str, List[Any]]" = {
    "ddp_store_create_tcp": [c_char_p, c_int32, c_int64, c_int32, POINTER(c_void_p)],
    "ddp_store_create_file": [c_char_p, c_int64, c_int64, POINTER(c_void_p)],
    "ddp_store_create_prefix": [c_char_p, c_void_p, POINTER(c_void_p)],
    "ddp_session_init": [POINTER(SessionOptions), POINTER(c_void_p)],
    "ddp_group_new": [c_void_p, POINTER(c_int32), c_size_t, POINTER(GroupOptions), POINTER(c_void_p)],
    "ddp_group_destroy": [c_void_p],
    "ddp_issue": [c_void_p, c_char_p, POINTER(Work)],
    "ddp_work_wait_source": [Work, POINTER(c_int32)],
    "ddp_work_wait_for": [Work, c_int64, POINTER(c_int32)],
    "ddp_keep": [
        c_void_p, c_char_p, c_size_t, POINTER(KeepOptions), POINTER(c_void_p), POINTER(c_void_p), POINTER(c_int32)
    ],
    "ddp_kept_peek": [c_char_p, c_void_p, c_size_t, POINTER(c_size_t)],
    "ddp_kept_begun": [c_void_p, POINTER(c_int32)],
    "ddp_kept_updated": [c_void_p],
    "ddp_kept_done": [c_void_p, POINTER(c_int64)],
    "ddp_stay": [c_int32, POINTER(c_int32)],
    "ddp_round_await_end": [c_int64, POINTER(c_int32)],
    "ddp_round_await_next": [c_char_p, c_void_p],
    "ddp_round_connections": [c_char_p, c_int32, POINTER(c_int32)],
}


def _path() -> str:
    """Returns the libddp to open: the wheel's, else the one of the build tree that ddprun is in, else the system's."""
    try:
        return find_library()
    except FileNotFoundError:
        pass
    try:
        beside = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(find_binary()))), "lib", _SONAME)
        if os.path.isfile(beside):
            return beside
    except FileNotFoundError:
        pass
    return _SONAME


def _open() -> ctypes.CDLL:
    path = _path()
    try:
        library = ctypes.CDLL(path)
        library.ddp_error_last.restype = c_char_p
        for name, arguments in _CALLS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, c_int32
        library.ddp_kept_recovered.argtypes, library.ddp_kept_recovered.restype = [c_void_p], c_char_p
        library.ddp_session_world.argtypes, library.ddp_session_world.restype = [c_void_p], c_void_p
        library.ddp_session_destroy.argtypes, library.ddp_session_destroy.restype = [c_void_p], None
        library.ddp_store_destroy.argtypes, library.ddp_store_destroy.restype = [c_void_p], None
    except (OSError, AttributeError) as error:
        raise ImportError(
            f'the backend "ddp" of torch.distributed needs libddp, which could not be used: {path}: {error} '
            "(is the package ddprun complete? python -m pip install --force-reinstall ddprun)"
        ) from error
    return library


libddp = _open()


def check(status: int) -> None:
    """Raises what a call's status stands for, in libddp's words: ValueError for arguments, else DistBackendError."""
    if status == 0:
        return
    message = libddp.ddp_error_last().decode(errors="replace")
    raise ValueError(message) if status == _INVALID_ARGUMENT else DistBackendError(message)


# ddp_operation, packed: that takes half the time of a ctypes.Structure. Objects and the sender of a message stay zeros.
_OPERATION = struct.Struct("NiiIiq" + 2 * "PNi12x" + "idPP40x")


def issue(
    group: Optional[int], kind: int, timeout: int, given: Memory = NO_MEMORY, output: Memory = NO_MEMORY, root: int = 0,
    reduction: Reduction = SUM_OF_ALL, tag: int = 0, wait_all_ranks: bool = False, given_counts: int = 0,
    output_counts: int = 0, work: Any = None,
) -> None:
    """Performs an operation of a group, or starts one that *work names. Counts are addresses."""
    operation = _OPERATION.pack(
        _OPERATION.size, kind, root, tag, wait_all_ranks, timeout, *given, *output, *reduction, given_counts,
        output_counts,
    )
    check(libddp.ddp_issue(group, operation, work))
