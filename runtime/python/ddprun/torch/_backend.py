# SPDX-License-Identifier: BSD-3-Clause
"""What torch.distributed makes for each process group: a Backend where PyTorch lets Python subclass it, else a
ProcessGroup. Both have the methods of Operations.
"""
from __future__ import annotations

import weakref
from datetime import timedelta
from typing import Any, List, Optional, Set

import torch
from torch import distributed as dist
from torch._C import _distributed_c10d as c10d

from ddprun.torch._collectives import Collectives
from ddprun.torch._messages import Messages, complete_works, give_out_messages
from ddprun.torch._profile import record_operations
from ddprun.torch._session import Group, join


def _has_python_backends() -> bool:
    """Returns whether Python may subclass Backend: PyTorch 2.14 and newer."""
    try:
        c10d.Backend(0, 1)
    except TypeError:
        return False
    return True


HAS_PYTHON_BACKENDS = _has_python_backends()

# The backends that are open. With TORCH_DISTRIBUTED_DEBUG=DETAIL nothing in PyTorch keeps their Python part, without
# which they lose their methods.
_open_backends: "Set[DdpBackend]" = set()
_open_groups: "weakref.WeakSet[DdpProcessGroup]" = weakref.WeakSet()


@record_operations
class Operations(Collectives, Messages):
    """All that PyTorch calls."""

    events = "ddp"  # the profiler's names of operations begin with it


class DdpBackend(Operations, c10d.Backend):
    """The backend of one device type in a process group: PyTorch 2.14 and newer."""

    def __init__(self, group: Group, rank: int, size: int, timeout: timedelta):
        c10d.Backend.__init__(self, rank, size)
        self._options = c10d.Backend.Options("ddp", timeout=timeout)
        self._open(group, timeout)
        _open_backends.add(self)

    @property
    def options(self) -> Any:
        """The timeout and the ranks, as new_group() and others ask for them."""
        return self._options

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the timeout of later operations."""
        Operations.set_timeout(self, timeout)
        self._options._timeout = timeout

    _set_default_timeout = set_timeout

    def shutdown(self) -> None:
        """Leaves the group, once its operations in flight have ended."""
        _open_backends.discard(self)
        self._close()

    abort = shutdown


class DdpProcessGroup(Operations, c10d.ProcessGroup):
    """A whole process group: PyTorch before 2.14."""

    def __init__(self, group: Group, rank: int, size: int, timeout: timedelta):
        c10d.ProcessGroup.__init__(self, rank, size)
        self._open(group, timeout)
        self._group_name, self._group_desc = "", ""
        # destroy_process_group() of PyTorch 2.4 only drops the object.
        weakref.finalize(self, group.close).atexit = False
        _open_groups.add(self)

    def _get_backend(self, device: Any) -> "DdpProcessGroup":
        return self

    # PyTorch keeps a group's name and description in its backends, of which this group has none.
    def _set_group_name(self, name: str) -> None:
        self._group_name = name

    def _set_group_desc(self, desc: str) -> None:
        self._group_desc = desc

    def getGroupName(self) -> str:
        """Returns the name by which functional collectives find the group."""
        return self._group_name

    def getGroupDesc(self) -> str:
        """Returns the description that new_group() was given."""
        return self._group_desc

    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)

    @property
    def _device_types(self) -> "List[torch.device]":
        return [torch.device("cpu")]

    def shutdown(self) -> None:
        """Leaves the group, once its operations in flight have ended."""
        self._close()

    abort = shutdown


_Class: Any = DdpBackend if HAS_PYTHON_BACKENDS else DdpProcessGroup


def make(options: Any, backend_options: Optional[Any], kind: Any = _Class) -> Any:
    """Makes what PyTorch asks for, given its _DistributedBackendOptions."""
    ranks = list(options.global_ranks_in_group)
    if not ranks:
        for leftover in [*_open_backends, *_open_groups]:
            leftover.shutdown()  # its default group was destroyed, but this one was not told
    rank, size, timeout = options.group_rank, options.group_size, options.timeout
    group = join(options.store, rank, size, timeout, options.group_id, ranks)
    made = kind(group, rank, size, timeout)
    if HAS_PYTHON_BACKENDS:
        made.options.global_ranks_in_group = ranks
        made.options.group_name = options.group_id
    return made


def register() -> None:
    """Registers the backend "ddp". PyTorch 2.14 and newer calls this for the name; importing ddprun.torch does too."""
    if "DDP" in dist.Backend._plugins:
        return
    complete_works()
    if HAS_PYTHON_BACKENDS:
        give_out_messages()
    # "cuda" too: so that CUDA tensors come here, and are refused in words that say what to do.
    dist.Backend.register_backend("ddp", make, extended_api=True, devices=["cpu", "cuda"])


def serve_gloo() -> None:
    """Serves init_process_group("gloo") from now on, with what this backend does not do left to PyTorch's Gloo."""
    from ddprun.torch._gloo import register_gloo

    register_gloo()
