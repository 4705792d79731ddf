# SPDX-License-Identifier: BSD-3-Clause
"""The TCP connections of a process group, which end when ddprun ends the round.

A rank that waits in PyTorch's Gloo notices the death of a neighbour, and of nobody else: not of a rank further away, nor
of one whose machine is gone or that was stopped. It waits for up to 30 minutes, and nothing in PyTorch frees it. So the
agent shuts the connections down from outside, and the wait ends with an error. Where the system does not let the agent
do that, a thread of this process does it.

    forming    all connections that were not there when the attempt began: also that to the store, in which ranks wait
               for each other
    formed     those that were opened meanwhile. What the program opens later by itself is its own.
"""
import os
import socket
import threading
from typing import Any, Callable, Dict, Optional, Set

from torch import distributed as dist

from ddprun.recovery import _survival

_BETWEEN_LOOKS = 0.5  # seconds in which the thread sees that it is no longer wanted


def tcp_sockets() -> Dict[int, int]:
    """Returns the descriptors of this process's TCP sockets, by inode."""
    found = {}
    for descriptor in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{descriptor}"
        try:
            kind, _, inode = os.readlink(path).partition(":")
            if kind == "socket" and os.getxattr(path, "system.sockprotoname").startswith(b"TCP"):
                found[int(inode.strip("[]"))] = int(descriptor)
        except OSError:
            pass  # closed meanwhile
    return found


class Connections:
    """Those of one attempt, until close()."""

    def __init__(self) -> None:
        self._programs: Set[int] = set(tcp_sockets())  # sockets that are not ours
        self._ours: Set[int] = set()
        self._are_forming = False
        self._thread: Optional[threading.Thread] = None
        self._lock = threading.Lock()  # guards the three above, which the thread reads
        self._is_closed = threading.Event()
        self._form: Optional[Callable[..., Any]] = None

    def forming(self) -> None:
        """From here on what is opened is ours, until formed()."""
        self._say(are_forming=True)

    def formed(self) -> None:
        """What is opened from here on is the program's own."""
        self._say(are_forming=False)

    def watch_new_groups(self) -> None:
        """Has groups that the program makes from now on counted, too."""
        c10d: Any = dist.distributed_c10d
        self._form = getattr(c10d, "_new_process_group_helper", None)
        if self._form is not None:
            c10d._new_process_group_helper = self._form_group

    def close(self) -> None:
        """Ends nothing any more."""
        c10d: Any = dist.distributed_c10d
        if self._form is not None and c10d._new_process_group_helper == self._form_group:
            c10d._new_process_group_helper = self._form
        self._is_closed.set()
        if self._thread is not None:
            self._thread.join()

    def _form_group(self, *args: Any, **kwargs: Any) -> Any:
        assert self._form is not None
        self.forming()
        try:
            return self._form(*args, **kwargs)
        finally:
            self.formed()

    def _say(self, are_forming: bool) -> None:
        there = set(tcp_sockets())
        with self._lock:
            if are_forming:
                self._programs = there - self._ours
            else:
                self._ours = there - self._programs
            self._are_forming = are_forming
            listed = self._programs if are_forming else self._ours
        if not _survival.say_connections(listed, are_forming) and self._thread is None:
            self._thread = threading.Thread(target=self._end_when_over, name="ddprun attempt", daemon=True)
            self._thread.start()

    def _end_when_over(self) -> None:
        while not self._is_closed.is_set():
            if not _survival.is_round_over(_BETWEEN_LOOKS):
                continue
            with self._lock:
                ends = [fd for inode, fd in tcp_sockets().items() if self._is_ours(inode)]
            for descriptor in ends:
                _shut(descriptor)
            self._is_closed.wait(_BETWEEN_LOOKS / 10)  # others may have been opened meanwhile

    def _is_ours(self, inode: int) -> bool:
        return inode not in self._programs if self._are_forming else inode in self._ours


def _shut(descriptor: int) -> None:
    try:
        with socket.socket(fileno=os.dup(descriptor)) as copy:
            copy.getpeername()  # raises for one that listens: that stays as it is
            copy.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
