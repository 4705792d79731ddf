# SPDX-License-Identifier: BSD-3-Clause
"""Which tensors lie where in kept memory: first those of this rank alone, then those that are equal on all ranks; of
both first parameters, then the optimizer's state.

The optimizer makes its state in its first step. The first process of a worker finds out with copies what that will be,
and leaves the answer in the memory. A later one takes it from there if it has the same optimizer and parameters: copies
and a step would take most of the time until it is where the process before it was.
"""
import copy
import hashlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch.optim import Optimizer

from ddprun.recovery._optimizer import groups_of, parameters_in, tensors_in, values_of
from ddprun.recovery._record import Record, aligned, is_plain, saved_size, size_of, space_of
from ddprun.recovery._shards import OWN, Parts, is_distributed, local_of

_MOST = 1 << 28  # bytes of a layout: more than a model of a million tensors needs


class Place(NamedTuple):
    """Where a tensor lies in kept memory."""

    name: str
    dtype: torch.dtype
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    start: int  # in bytes from the first tensor
    is_distributed: bool  # the local tensor of a DTensor


class Layout(NamedTuple):
    """All places, and the room for what is not a tensor."""

    of: str  # what identity_of() has returned
    places: List[Place]
    own_end: int  # where the tensors that only this rank has end; 0: all are equal on all ranks
    parameters: Tuple[int, int]  # the bytes between which all parameters lie
    end: int
    values: int  # bytes for what the state has besides tensors
    groups: int  # bytes for the settings of the groups


def state_name(parameter: str, key: str) -> str:
    """Returns the name of a tensor of a parameter's state."""
    return f"{parameter}: {key}"


def identity_of(parts: Parts) -> str:
    """Returns a text that is equal in two processes only where their optimizers make the same state."""
    optimizer = parts.optimizer
    kind = type(optimizer)
    in_words = (
        torch.__version__,
        f"{kind.__module__}.{kind.__qualname__}",
        [(name, _kind_of(part.tensor()), part.parameter.requires_grad, part.kind) for name, part in parts.by_name.items()],
        [(name, tuple(parameter.shape)) for name, parameter in parts.parameters.items()],
        [len(group["params"]) for group in optimizer.param_groups],
        [_in_words(settings) for settings in groups_of(optimizer)],
        # Some optimizers make their state before the first step, and it may have been loaded.
        [_in_words(optimizer.state.get(parameter, {})) for parameter in parameters_in(optimizer)],
    )
    return hashlib.sha256(repr(in_words).encode()).hexdigest()


def find_layout(identity: str, peek: "Callable[[int], bytes]") -> Optional[Layout]:
    """Returns the layout that an earlier process has left for the same optimizer and parameters, if there is one.
    peek(size) returns the first bytes of its memory."""
    size = saved_size(peek(8))
    if not 0 < size <= _MOST:
        return None
    try:
        found = Record(bytearray(peek(size))).read()
    except Exception:  # the memory is another program's, or of another release
        return None
    return found if isinstance(found, Layout) and found.of == identity else None


def make_layout(identity: str, parts: Parts) -> Layout:
    """Finds out with a copy of the optimizer what state it makes."""
    optimizer = parts.optimizer
    names = {parameter: name for name, parameter in parts.parameters.items()}
    own: List[Tuple[str, torch.Tensor]] = []
    replicated: List[Tuple[str, torch.Tensor]] = []
    for name, part in parts.by_name.items():
        (own if part.kind == OWN else replicated).append((name, part.tensor()))
    counts = len(own), len(replicated)
    copied = _copy_after_a_step(optimizer)
    for theirs, parameter in zip(parameters_in(copied), parameters_in(optimizer)):
        for key, tensor in sorted(tensors_in(copied.state.get(theirs, {})).items()):
            _check_state(f"{key} of {names[parameter]}", tensor, parameter)
            (own if parts.is_sharded else replicated).append((state_name(names[parameter], key), tensor))
    places, own_end = _placed(own, 0)
    others, end = _placed(replicated, own_end)
    parameters = places[: counts[0]] + others[: counts[1]]
    span = min((place.start for place in parameters), default=0), max(map(_end_of, parameters), default=0)
    values, groups = (aligned(2 * size_of(part) + 4096) for part in (values_of(copied), groups_of(copied)))
    return Layout(identity, places + others, own_end, span, end, values, groups)


def _end_of(place: Place) -> int:
    return place.start + aligned(torch.Size(place.shape).numel() * place.dtype.itemsize)


def _placed(tensors: "List[Tuple[str, torch.Tensor]]", start: int) -> "Tuple[List[Place], int]":
    """Returns places for tensors from a byte on, and where they end."""
    places = []
    for name, tensor in tensors:
        local = local_of(tensor)
        places.append(Place(name, *_kind_of(local), start, is_distributed(tensor)))
        start += space_of(local)
    return places, start


def _check_state(name: str, tensor: torch.Tensor, parameter: torch.Tensor) -> None:
    """Raises ValueError for a tensor of the optimizer's state that cannot be kept."""
    check_tensor(name, local_of(tensor))
    if not is_distributed(tensor):
        return
    own: Any = parameter
    its: Any = tensor
    if not is_distributed(parameter) or its.placements != own.placements or its.shape != own.shape:
        raise ValueError(f"ddprun.keep: {name} is not spread over ranks as its parameter is; it cannot be kept")


def check_tensor(name: str, tensor: torch.Tensor) -> None:
    """Raises ValueError for a tensor that cannot be kept."""
    if tensor.device.type != "cpu":
        raise ValueError(
            f"ddprun.keep: {name} is on {tensor.device}; only the CPU's memory outlives a process "
            "(train without keep(), and go on from checkpoints)"
        )
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or not is_plain(tensor):
        raise ValueError(
            f"ddprun.keep: {name} is a {type(tensor).__name__} ({tensor.layout}); only plain tensors are kept"
        )


def _kind_of(tensor: torch.Tensor) -> "Tuple[torch.dtype, Tuple[int, ...], Tuple[int, ...]]":
    """Returns the type, shape and strides that a tensor has in kept memory."""
    strides = tensor.stride() if _is_dense(tensor) else torch.empty(tensor.shape, device="meta").stride()
    return tensor.dtype, tuple(tensor.shape), tuple(strides)


def _is_dense(tensor: torch.Tensor) -> bool:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if tensor.is_contiguous():
        return True
    return tensor.dim() in formats and tensor.is_contiguous(memory_format=formats[tensor.dim()])


def _in_words(values: "Dict[str, Any]") -> "List[Tuple[str, str]]":
    return sorted(
        (str(key), repr(_kind_of(local_of(value)) if isinstance(value, torch.Tensor) else value))
        for key, value in values.items()
    )


def _copy_after_a_step(optimizer: Optimizer) -> Optimizer:
    """Returns a copy of the optimizer after a step without gradients: it shows what state the optimizer makes."""
    state = torch.get_rng_state()
    # Shards know the model that they are of, which is not to be copied.
    stand_ins: "Dict[int, Any]" = {
        id(parameter): torch.nn.Parameter(torch.zeros_like(parameter.detach()), parameter.requires_grad)
        for parameter in parameters_in(optimizer)
        if type(parameter) is not torch.nn.Parameter or parameter._base is not None
    }
    copied = copy.deepcopy(optimizer, stand_ins)
    for parameter in parameters_in(copied):
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)
    try:
        copied.step()
    except Exception as error:
        raise ValueError(
            f"ddprun.keep: it is not known what state {type(optimizer).__name__} makes, since a copy of it cannot take "
            f"a step: {error}"
        ) from error
    torch.set_rng_state(state)
    return copied
