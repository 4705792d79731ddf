# SPDX-License-Identifier: BSD-3-Clause
"""Messages between two ranks, which go on after the call that starts them."""
from __future__ import annotations

import ctypes
import threading
from datetime import timedelta
from typing import Any, Callable, List, Optional, Sequence, Set

import torch
from torch._C import _distributed_c10d as c10d
from torch.distributed import DistBackendError

from ddprun.torch._group import GroupMember, done
from ddprun.torch._libddp import ANY_RANK, Work, check, libddp
from ddprun.torch._tensors import is_in_cpu_memory, moved, one, plain

# PyTorch before 2.13 does not keep the Python part of a Work, without which wait() never returns.
_under_way: "Set[Any]" = set()


class Message(c10d.Work):
    """A message between two ranks. It is under way already; wait() waits in libddp."""

    def __init__(self, backend: Any, work: Work, tensors: "List[torch.Tensor]"):
        super().__init__()
        self._backend = backend
        self._work = work
        self._tensors = tensors  # libddp reads or writes their memory
        self._ended = False
        self._source = -1
        _under_way.add(self)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Waits until the message has ended, but no longer than timeout, if that is more than 0."""
        if self._ended:
            return True
        self._backend._require_open()
        try:
            if timeout > timedelta(0):
                completed = ctypes.c_int32()
                limit = int(timeout.total_seconds() * 1000)
                check(libddp.ddp_work_wait_for(self._work, limit, ctypes.byref(completed)))
                if not completed.value:
                    raise DistBackendError(f"a message has not ended within the {timeout.total_seconds()} s of wait()")
            source = ctypes.c_int32()
            check(libddp.ddp_work_wait_source(self._work, ctypes.byref(source)))
        finally:
            _under_way.discard(self)
        self._source = source.value
        self._ended = True
        return True

    def synchronize(self) -> None:
        """Waits, as wait() does."""
        self.wait()

    def is_completed(self) -> bool:
        """Returns whether the message has ended."""
        if self._ended:
            return True
        self._backend._require_open()
        completed = ctypes.c_int32()
        check(libddp.ddp_work_wait_for(self._work, 0, ctypes.byref(completed)))
        if completed.value:
            self.wait()
        return self._ended

    def is_success(self) -> bool:
        """Returns whether the message has ended well; a failed one raises."""
        return self.is_completed()

    def result(self) -> "List[torch.Tensor]":
        """Returns the tensors that were sent or received."""
        return self._tensors

    def source_rank(self) -> int:
        """Returns the rank in the group that a received message came from."""
        return self._source

    _source_rank = source_rank


class Batch(c10d.Work):
    """Several messages at once: what coalescing makes of them."""

    def __init__(self, messages: Sequence[Message]):
        super().__init__()
        self._messages = messages
        _under_way.add(self)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Waits until all messages have ended."""
        try:
            for message in self._messages:
                message.wait(timeout)
        finally:
            _under_way.discard(self)
        return True

    def is_completed(self) -> bool:
        """Returns whether all messages have ended."""
        return all(message.is_completed() for message in self._messages)


# PyTorch 2.14 and newer wraps the Work that a backend of Python returns into another one, whose is_completed() is
# always false and which has no source_rank(). So ProcessGroup's methods give out the message itself, which this thread
# has just started, and a Work whose future is done is complete. Other backends' works stay as they are.
_latest = threading.local()


def _give_out(name: str) -> None:
    original = getattr(c10d.ProcessGroup, name)

    def start(self: Any, *arguments: Any, **named: Any) -> Any:
        _latest.message = None
        work = original(self, *arguments, **named)
        message: Optional[Message] = _latest.message
        _latest.message = None
        return work if message is None else message

    start.__name__, start.__doc__ = name, original.__doc__
    setattr(c10d.ProcessGroup, name, start)


def give_out_messages() -> None:
    """Makes ProcessGroup's methods return our messages, and Work.is_completed() the truth. Called once."""
    for name in ("send", "recv", "recv_anysource"):
        _give_out(name)
    original = c10d.Work.is_completed

    def is_completed(self: Any) -> bool:
        if original(self):
            return True
        try:
            future = self.get_future()
            # The future of an operation on a GPU is done once it is enqueued; that backend's own answer counts.
            return bool(future.done()) and is_in_cpu_memory(future.value())
        except RuntimeError:  # it has none, or has failed
            return False

    is_completed.__doc__ = original.__doc__
    c10d.Work.is_completed = is_completed


class Messages(GroupMember):
    """send, recv and what collects them."""

    def _message(self, what: str, tensors: Any, start: Callable[..., int], peer: int, tag: int) -> Message:
        self._require_open()
        tensor = one(what, tensors)
        if not plain(tensor):
            self._contiguous(what, tensor)  # refuses what is not in the CPU's memory
            raise ValueError(f"{what}: the tensor must be contiguous: give it tensor.contiguous()")
        if tag < 0:
            raise ValueError(f"{what}: the tag is {tag}, but must not be negative")
        work = Work()
        check(start(self._handle, moved(tensor), peer, tag, self._timeout, ctypes.byref(work)))
        message = _latest.message = Message(self, work, [tensor])
        if self._coalesced is not None:
            self._coalesced.append(message)
        return message

    def send(self, tensors: List[torch.Tensor], dst: int, tag: int = 0) -> Message:
        """Starts to send a tensor to another rank."""
        return self._message("send", tensors, libddp.ddp_isend, dst, tag)

    def recv(self, tensors: List[torch.Tensor], src: int, tag: int = 0) -> Message:
        """Starts to receive a tensor of another rank."""
        return self._message("recv", tensors, libddp.ddp_irecv, src, tag)

    def recv_anysource(self, tensors: List[torch.Tensor], tag: int = 0) -> Message:
        """Starts to receive a tensor of whichever rank sends first."""
        return self._message("recv", tensors, libddp.ddp_irecv, ANY_RANK, tag)

    def start_coalescing(self, device: Any = None) -> None:
        """Begins to collect the messages that end_coalescing() returns as one work."""
        self._coalesced = []

    def end_coalescing(self, device: Any = None) -> Any:
        """Returns one work for all that was issued since start_coalescing(). Collectives are done already."""
        messages, self._coalesced = self._coalesced, None
        return Batch(messages) if messages else done([])

    _start_coalescing = start_coalescing
    _end_coalescing = end_coalescing
