# SPDX-License-Identifier: BSD-3-Clause
"""Messages between two ranks, which go on after the call that starts them."""
from __future__ import annotations

import ctypes
import threading
from datetime import timedelta
from typing import Any, List, Optional, Sequence, Set

import torch
from torch._C import _distributed_c10d as c10d
from torch.distributed import DistBackendError

from ddprun.torch._group import UNSET, GroupMember, done
from ddprun.torch._libddp import ANY_RANK, RECV, SEND, Work, check, issue, libddp
from ddprun.torch._profile import tensors_of
from ddprun.torch._session import milliseconds
from ddprun.torch._tensors import give_back, is_in_cpu_memory, moved, one

# PyTorch before 2.13 does not keep the Python part of a Work, without which wait() never returns.
_under_way: "Set[Any]" = set()


class Message(c10d.Work):
    """A message between two ranks. It is under way already; wait() waits in libddp."""

    def __init__(self, backend: Any, work: Work, memory: torch.Tensor, tensor: torch.Tensor):
        super().__init__()
        self._backend = backend
        self._work = work
        self._memory = memory  # libddp reads or writes it
        self._tensor = tensor  # what a received message is for; the same, or a view that is conjugated or negated
        self._ended = False
        self._failure: Optional[Exception] = None
        self._source = -1
        _under_way.add(self)

    def _ends_within(self, milliseconds_: int) -> bool:
        completed = ctypes.c_int32()
        libddp.ddp_work_wait_for(self._work, milliseconds_, ctypes.byref(completed))
        return completed.value != 0  # also if it has failed, which wait() raises

    def wait(self, timeout: timedelta = UNSET) -> bool:
        """Waits until the message has ended, but no longer than timeout, if that is more than 0."""
        if self._ended:
            return True
        self._backend._require_open()
        if timeout > UNSET and not self._ends_within(milliseconds(timeout)):
            raise DistBackendError(f"a message has not ended within the {timeout.total_seconds()} s of wait()")
        source = ctypes.c_int32()
        try:
            check(libddp.ddp_work_wait_source(self._work, ctypes.byref(source)))
        except Exception as error:
            self._failure = error
            raise
        finally:
            _under_way.discard(self)
        give_back(self._memory, self._tensor)
        self._source = source.value
        self._ended = True
        return True

    def synchronize(self) -> None:
        """Waits, as wait() does."""
        self.wait()

    def is_completed(self) -> bool:
        """Returns whether the message has ended, well or not."""
        if self._ended or self._failure is not None:
            return True
        self._backend._require_open()
        if not self._ends_within(0):
            return False
        try:
            return self.wait()
        except DistBackendError:
            return True

    def is_success(self) -> bool:
        """Returns whether the message has ended well."""
        return self.is_completed() and self._failure is None

    def exception(self) -> Optional[Exception]:  # type: ignore[override]
        """Returns why the message has failed, if it has."""
        return self._failure

    def result(self) -> "List[torch.Tensor]":
        """Returns the tensor that was sent or received."""
        return [self._tensor]

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

    def wait(self, timeout: timedelta = UNSET) -> bool:
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
    """Makes ProcessGroup's methods return our messages. Called once."""
    for name in ("send", "recv", "recv_anysource"):
        _give_out(name)


def _value(work: Any) -> Any:
    """Returns what an operation gives that has ended and has a future; else None."""
    try:
        future = work.get_future()
        value = future.value() if future.done() else None
    except RuntimeError:  # it has none, or has failed
        return None
    # The future of an operation on a GPU is done once it is enqueued; that backend's own answers count.
    return value if is_in_cpu_memory(value) else None


def complete_works() -> None:
    """Gives PyTorch's Works what a Work made of a future lacks, in some versions: is_completed() that is true once it
    has ended, wait() with a timeout, result(). Called once.
    """
    completed, wait, result = c10d.Work.is_completed, c10d.Work.wait, c10d.Work.result

    def is_completed(self: Any) -> bool:
        return completed(self) or _value(self) is not None

    def wait_for(self: Any, timeout: timedelta = UNSET) -> bool:
        return wait(self) if timeout > UNSET and _value(self) is not None else wait(self, timeout)

    def result_of(self: Any) -> Any:
        value = _value(self)
        if value is None:
            return result(self)
        return tensors_of(value) if isinstance(value, list) else []

    for name, function in (("is_completed", is_completed), ("wait", wait_for), ("result", result_of)):
        function.__name__, function.__doc__ = name, getattr(c10d.Work, name).__doc__
        setattr(c10d.Work, name, function)


class Messages(GroupMember):
    """send, recv and what collects them."""

    def _message(self, what: str, tensors: Any, kind: int, peer: int, tag: int) -> Message:
        self._require_open()
        tensor = one(what, tensors)
        memory = self._contiguous(what, tensor)
        if not tensor.is_contiguous():
            raise ValueError(f"{what}: the tensor must be contiguous: give it tensor.contiguous()")
        if tag < 0:
            raise ValueError(f"{what}: the tag is {tag}, but must not be negative")
        work = Work()
        buffer = moved(memory)
        issue(self._handle, kind, self._timeout, buffer, buffer, peer, tag=tag, work=ctypes.byref(work))
        message = _latest.message = Message(self, work, memory, tensor if what == "recv" else memory)
        if self._coalesced is not None:
            self._coalesced.append(message)
        return message

    def send(self, tensors: List[torch.Tensor], dst: int, tag: int = 0) -> Message:
        """Starts to send a tensor to another rank."""
        return self._message("send", tensors, SEND, dst, tag)

    def recv(self, tensors: List[torch.Tensor], src: int, tag: int = 0) -> Message:
        """Starts to receive a tensor of another rank."""
        return self._message("recv", tensors, RECV, src, tag)

    def recv_anysource(self, tensors: List[torch.Tensor], tag: int = 0) -> Message:
        """Starts to receive a tensor of whichever rank sends first."""
        return self._message("recv", tensors, RECV, ANY_RANK, tag)

    def start_coalescing(self, device: Any = None) -> None:
        """Begins to collect the messages that end_coalescing() returns as one work."""
        self._coalesced = []

    def end_coalescing(self, device: Any = None) -> Any:
        """Returns one work for all that was issued since start_coalescing(). Collectives are done already."""
        messages, self._coalesced = self._coalesced, None
        return Batch(messages) if messages else done([])

    _start_coalescing = start_coalescing
    _end_coalescing = end_coalescing
