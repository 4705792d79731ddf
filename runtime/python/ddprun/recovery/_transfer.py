# SPDX-License-Identifier: BSD-3-Clause
"""Gives all ranks of a new group the state of the rank that has come farthest.

Ranks differ by one update at most, since an update comes after all of its step's reductions. Those that are at the same
place have equal parameters and optimizers, and keep theirs.
"""
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import distributed as dist
from torch.optim import Optimizer

from ddprun.recovery._optimizer import groups_of, parameters_in, set_groups, tensors_in, values_of
from ddprun.recovery._record import packed, unpacked

_CHUNK = 32 << 20  # bytes of a tensor that are sent at once


class Place(NamedTuple):
    """Where a rank is."""

    has_stayed: bool  # it is no new process
    is_whole: bool  # its tensors are those of a place, not in the middle of an update or of being received
    done: int  # steps
    has_update: bool  # the update of the step under way is in its tensors

    def has_state_of(self, other: "Place") -> bool:
        """Returns whether this rank has the tensors of the other place."""
        is_there = (self.done, self.has_update) == (other.done, other.has_update)
        return self.has_stayed and self.is_whole and is_there


def gather_places(own: Place) -> List[Place]:
    """Returns the places of all ranks."""
    mine = torch.tensor([int(part) for part in own])
    all_of_them = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(all_of_them, mine)
    return [Place(bool(a), bool(b), int(c), bool(d)) for a, b, c, d in (place.tolist() for place in all_of_them)]


def choose_source(places: List[Place]) -> Optional[int]:
    """Returns the rank whose state all others take: the first of those that have come farthest. Where all processes are
    new it is the first, as a rule rank 0. None: no process that has stayed has a whole state; or all are new, and all
    were receiving the state of one that has died since."""
    any_stayed = any(place.has_stayed for place in places)
    whole = [rank for rank, place in enumerate(places) if place.is_whole and place.has_stayed == any_stayed]
    return max(whole, key=lambda rank: (places[rank].done, places[rank].has_update, -rank), default=None)


def broadcast_object(obj: Any, source: int) -> Any:
    """Returns the object of the rank `source`."""
    is_source = dist.get_rank() == source
    whole = packed(obj) if is_source else torch.empty(0, dtype=torch.uint8)
    size = torch.tensor([whole.numel()])
    dist.broadcast(size, source)
    if not is_source:
        whole = torch.empty(int(size), dtype=torch.uint8)
    dist.broadcast(whole, source)
    return obj if is_source else unpacked(whole)


def layout_of(optimizer: Optimizer) -> "Dict[str, Any]":
    """Returns what an optimizer has besides the contents of tensors."""
    tensors = {}
    for number, parameter in enumerate(parameters_in(optimizer)):
        own = tensors_in(optimizer.state.get(parameter, {}))
        tensors[number] = [(key, own[key].dtype, tuple(own[key].shape)) for key in sorted(own)]
    return {"tensors": tensors, "values": values_of(optimizer), "groups": groups_of(optimizer)}


def take_layout(optimizer: Optimizer, layout: "Dict[str, Any]") -> None:
    """Has the optimizer have the tensors of a layout, whose contents come later, and all that is in it."""
    for number, parameter in enumerate(parameters_in(optimizer)):
        if number not in layout["values"]:
            optimizer.state.pop(parameter, None)
            continue
        before = tensors_in(optimizer.state.get(parameter, {}))
        state = {key: _tensor(before.get(key), parameter, dtype, shape) for key, dtype, shape in layout["tensors"][number]}
        optimizer.state[parameter] = {**state, **layout["values"][number][1]}
    set_groups(optimizer, layout["groups"])


def _tensor(
    before: Optional[torch.Tensor], parameter: torch.Tensor, dtype: torch.dtype, shape: "Tuple[int, ...]"
) -> torch.Tensor:
    if before is not None and before.dtype == dtype and tuple(before.shape) == shape:
        return before
    is_like = tuple(parameter.shape) == shape  # then it lies as the parameter does
    return torch.empty_like(parameter, dtype=dtype) if is_like else torch.empty(shape, dtype=dtype)


def state_tensors(optimizer: Optimizer) -> "List[torch.Tensor]":
    """Returns the tensors of an optimizer's state, in an order that is equal on all ranks."""
    found: "List[torch.Tensor]" = []
    for parameter in parameters_in(optimizer):
        own = tensors_in(optimizer.state.get(parameter, {}))
        found.extend(own[key] for key in sorted(own))
    return found


@torch.no_grad()
def give_tensors(tensors: "List[torch.Tensor]", source: int, takers: "List[int]") -> None:
    """Writes the tensors of the rank `source`, which all other ranks have that are not takers, to those of the takers."""
    rank, size = dist.get_rank(), dist.get_world_size()
    givers = [source, *(other for other in range(size) if other != source and other not in takers)]
    pairs = list(zip(givers, takers)) if len(takers) <= len(givers) else None
    for tensor in tensors:
        there = tensor.detach().contiguous()  # a copy, if it is not contiguous
        for piece in there.view(-1).view(torch.uint8).split(_CHUNK):
            if pairs is not None:
                _pass_on(piece, pairs, rank)
            else:  # others may ask a giver for its state next, so nothing is written to it
                dist.broadcast(piece if rank in takers or rank == source else torch.empty_like(piece), source)
        if rank in takers and there.data_ptr() != tensor.data_ptr():
            tensor.copy_(there)


def _pass_on(piece: torch.Tensor, pairs: "List[Tuple[int, int]]", rank: int) -> None:
    """Sends a piece from the first rank of each pair to the second."""
    for giver, taker in pairs:
        if rank == giver:
            dist.send(piece, taker)
        elif rank == taker:
            dist.recv(piece, giver)
