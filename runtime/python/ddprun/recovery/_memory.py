# SPDX-License-Identifier: BSD-3-Clause
"""Memory that ddprun keeps for this worker (libddp's ddp_keep()): bytes for tensors, a record, marks of a step."""
import ctypes
import os
from ctypes import c_int32, c_int64, c_size_t, c_void_p
from typing import Any

from ddprun.torch import _session
from ddprun.torch._libddp import UINT8, Buffer, KeepOptions, SessionOptions, check, libddp

_VARIABLE = "DDPRUN_KEPT_MEMORY"  # set by ddprun where it has the option --keep-memory


def is_asked_for() -> bool:
    """Returns whether ddprun keeps memory for this process."""
    return _VARIABLE in os.environ


def peek(name: str, size: int) -> bytes:
    """Returns the first bytes of what an earlier process of this worker has kept under a name; b"": there is nothing."""
    buffer, there = (ctypes.c_uint8 * size)(), c_size_t()
    check(libddp.ddp_kept_peek(name.encode(), buffer, size, ctypes.byref(there)))
    return bytes(memoryview(buffer)[: there.value])


class KeptMemory:
    """The memory of this worker. Every rank of the job makes it at the same time, with the same arguments, but that the
    first own_size bytes are the rank's own."""

    _made = 0

    def __init__(self, name: str, size: int, record_size: int, layout: int, own_size: int, own_layout: int):
        # The session of torch's default group compares what ranks have found, if that session is libddp's and of all
        # ranks.
        world = _session.session_of_job()
        session = world if world is not None else self._meet_all_ranks()
        self.record = (ctypes.c_uint8 * record_size)()
        part = Buffer(ctypes.addressof(self.record), record_size, UINT8, 0, 0)
        options = KeepOptions(ctypes.sizeof(KeepOptions), ctypes.pointer(part), 1, layout, own_size, own_layout)
        kept, memory, found = c_void_p(), c_void_p(), c_int32()
        try:
            check(
                libddp.ddp_keep(session, name.encode(), size, ctypes.byref(options), ctypes.byref(kept),
                                ctypes.byref(memory), ctypes.byref(found))
            )
        finally:
            if world is None:
                libddp.ddp_session_destroy(session)
        self._kept = kept
        self.memory: Any = (ctypes.c_uint8 * size).from_address(memory.value or 0)
        self.found = found.value != 0
        self.is_filled = found.value == 2  # with what a rank of another node has, since this one has lost its own
        self.recovered: str = libddp.ddp_kept_recovered(kept).decode()

    @classmethod
    def _meet_all_ranks(cls) -> c_void_p:
        """Returns a session of libddp for the comparison of what ranks have found."""
        cls._made += 1
        options = SessionOptions(ctypes.sizeof(SessionOptions), name=b"ddprun.keep.%d" % cls._made)
        session = c_void_p()
        check(libddp.ddp_session_init(ctypes.byref(options), ctypes.byref(session)))
        return session

    def begun(self) -> bool:
        """Copies the record, and marks that an update begins. Returns False if the memory has this update already: then
        the record is what it was here, and nothing may be written."""
        write = c_int32()
        check(libddp.ddp_kept_begun(self._kept, ctypes.byref(write)))
        return write.value != 0

    def updated(self) -> None:
        """Marks that the update is complete."""
        check(libddp.ddp_kept_updated(self._kept))

    def done(self) -> int:
        """Copies the record and marks that a step starts here, if there was an update since. Returns the number of
        steps that are done."""
        steps = c_int64()
        check(libddp.ddp_kept_done(self._kept, ctypes.byref(steps)))
        return steps.value
