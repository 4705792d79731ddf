# SPDX-License-Identifier: BSD-3-Clause
"""Operations as events of PyTorch's profiler, under names like Gloo's: "ddp:all_reduce", "ddp:send"."""
from __future__ import annotations

from typing import Any, Callable, List

import torch
from torch._C import _autograd

_is_profiling = _autograd._profiler_enabled

# The event of each method, and the place of the argument that has the tensors which a rank contributes.
_EVENTS = {
    "allreduce": ("all_reduce", 0),
    "allreduce_coalesced": ("all_reduce", 0),
    "reduce": ("reduce", 0),
    "broadcast": ("broadcast", 0),
    "allgather": ("all_gather", 1),
    "allgather_coalesced": ("all_gather", 1),
    "all_gather_single": ("all_gather", 1),
    "_allgather_base": ("all_gather", 1),
    "all_gather_single_coalesced": ("all_gather", 1),
    "allgather_into_tensor_coalesced": ("all_gather", 1),
    "gather": ("gather", 1),
    "gather_single": ("gather", 1),
    "gather_into_tensor": ("gather", 1),
    "scatter": ("scatter", 1),
    "reduce_scatter": ("reduce_scatter", 1),
    "reduce_scatter_single": ("reduce_scatter", 1),
    "_reduce_scatter_base": ("reduce_scatter", 1),
    "reduce_scatter_single_coalesced": ("reduce_scatter", 1),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter", 1),
    "all_to_all_single": ("all_to_all", 1),
    "alltoall_base": ("all_to_all", 1),
    "alltoall": ("all_to_all", 1),
    "barrier": ("barrier", None),
    "send": ("send", 0),
    "recv": ("recv", 0),
    "recv_anysource": ("recv", 0),
}


def tensors_of(arguments: Any) -> "List[torch.Tensor]":
    """Returns the tensors among arguments, in lists, and in lists of lists."""
    found: "List[torch.Tensor]" = []
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            found.append(argument)
        elif isinstance(argument, (list, tuple)):
            found += tensors_of(argument)
    return found


def _recorded(method: "Callable[..., Any]", event: str, place: Any) -> "Callable[..., Any]":
    def record(self: Any, *arguments: Any, **named: Any) -> Any:
        if not _is_profiling():
            return method(self, *arguments, **named)
        given = tensors_of(arguments[place : place + 1]) if place is not None else []
        handle = _autograd._record_function_with_args_enter(f"{self.events}:{event}", *given)
        try:
            return method(self, *arguments, **named)
        finally:
            _autograd._record_function_with_args_exit(handle)

    record.__name__, record.__doc__ = method.__name__, method.__doc__
    return record


def record_operations(kind: Any) -> Any:
    """Decorates a class whose operations become events, with its attribute `events` before the colon."""
    for name, (event, place) in _EVENTS.items():
        setattr(kind, name, _recorded(getattr(kind, name), event, place))
    return kind
