# SPDX-License-Identifier: BSD-3-Clause
"""Moves a model's parameters and its optimizer's state into kept memory, where they stay:

    layout     how the optimizer's state lies here, for later processes; a Record
    values     which tensors the optimizer's state has, and what it has besides; a Record
    groups     the settings of the optimizer's groups; a Record
    tensors    parameters and the optimizer's state, each aligned to 64 bytes (`_layout.py`)

Where a rank has tensors of its own (`_shards.py`), they and all that comes before them are its own.

Only places change: parameters and state stay the same Python objects. The optimizer makes its state in its first step,
so what it will be is found out with copies, and it moves when it is there. A later process of the worker reads it from
the memory: copies of a model and a step take longer than all else that it does.

A model has hundreds of tensors, and three times in a step it is checked that they are in their places. So a check
compares lists, without a name, and most steps write no values: for 504 tensors that takes 1.4 to 1.8 ms of a step, and took
7 ms by names; for 6 tensors 0.8 ms, and 1.3 by names.
"""
import hashlib
import operator
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch
from torch.optim import Optimizer

from ddprun.recovery._layout import check_tensor, find_layout, identity_of, make_layout, state_name
from ddprun.recovery._memory import peek
from ddprun.recovery._optimizer import groups_of, parameters_in, set_groups, tensors_in, values_of
from ddprun.recovery._record import Record, aligned, is_plain, size_of, view_of
from ddprun.recovery._shards import OWN, Part, Parts, like, local_of

_version_of = operator.attrgetter("_version")


class KeptTensors:
    """What of a model and its optimizer lies in kept memory: after each update all ranks have it equal, but for what is
    a rank's own."""

    def __init__(self, model: torch.nn.Module, optimizer: Optimizer, name: str):
        parts = Parts(model, optimizer)
        self._optimizer = parts.optimizer  # which has the state
        self._groups_of = optimizer  # whose settings the program changes
        self._parts: "Dict[str, Part]" = parts.by_name
        for path, part in self._parts.items():
            check_tensor(path, part.tensor())
        self._names = {parameter: path for path, parameter in parts.parameters.items()}
        identity = identity_of(parts)
        self._layout = find_layout(identity, lambda size: peek(name, size)) or make_layout(identity, parts)
        self._places = {place.name: place for place in self._layout.places}
        self._layout_bytes = aligned(size_of(self._layout))
        before = self._layout_bytes + self._layout.values + self._layout.groups
        self.size = before + self._layout.end
        self.own_size = before + self._layout.own_end if parts.is_sharded else 0
        self.kinds = {place.name: parts.kind_of_state for place in self._layout.places}
        self.kinds.update((path, part.kind) for path, part in self._parts.items())
        words = type(optimizer).__qualname__, self._layout_bytes, *self._layout[1:]
        equal = (*words[:1], *self._replicated_places()) if parts.is_sharded else words
        self.number_of_layout, self.number_of_own_layout = _number_of(equal), _number_of(words)
        self._has_shards = any(type(part) is not Part for part in self._parts.values())
        self._plain = [part.parameter for part in self._parts.values()]
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._values: Any = None
        self._groups: Any = None
        self._versions: List[int] = []
        # What the optimizer's state had when all was in its place, and all tensors with the addresses of their places.
        self._seen_state: "Optional[List[Any]]" = None
        self._seen: List[torch.Tensor] = []
        self._addresses: List[int] = []
        self._has_written_values = False  # what that state has besides tensors

    def _replicated_places(self) -> "Iterator[Tuple[Any, ...]]":
        for place in self._layout.places:
            if self.kinds[place.name] != OWN:
                yield (*place[:4], place.start - self._layout.own_end)

    # ---- Moving ----

    def move_into(self, memory: Any, found: bool) -> None:
        """Moves all that is there. found: the memory has the values."""
        layout = self._layout_bytes
        values, groups = layout + self._layout.values, layout + self._layout.values + self._layout.groups
        whole = memoryview(memory).cast("B")
        self._memory = torch.frombuffer(memory, dtype=torch.uint8)[groups:]
        self._values, self._groups = Record(whole[layout:values]), Record(whole[values:groups])
        if not found:
            Record(whole[:layout]).write(self._layout, "the table of tensors")
        for name, part in self._parts.items():
            self._move_part(part, name, found)
        if found and not self._values.is_empty():  # else there was no update yet
            self._attach_state()
        else:
            self.move_state()

    def move_state(self) -> None:
        """Moves the state that the optimizer has made since the last call."""
        if self._has_noted_state():
            return
        for name, tensor in self._state():
            if name not in self._places or self._places[name].shape != tuple(tensor.shape):
                raise RuntimeError(
                    f"ddprun.keep: {type(self._optimizer).__name__} has made state that its first step did not show: "
                    f"{name}, {list(tensor.shape)}; it cannot be kept"
                )
            if not self._is_in_place(tensor, name):
                self._move(tensor, name, False)
        self._note_places()

    def _move_part(self, part: Part, name: str, has_it: bool) -> None:
        there = self._view(name)
        if not has_it:
            there.copy_(part.tensor().detach())
        part.move(there)

    def _move(self, tensor: torch.Tensor, name: str, has_it: bool) -> None:
        there = self._view(name)
        if not has_it:
            there.copy_(tensor.detach())
        tensor.data = there

    def _attach_state(self) -> None:
        parameters = parameters_in(self._optimizer)
        for number, (keys, _) in self._values.read().items():
            parameter = parameters[number]
            names = {key: state_name(self._names[parameter], key) for key in keys}
            self._optimizer.state[parameter] = {
                key: like(parameter, self._view(name)) if self._places[name].is_distributed else self._view(name)
                for key, name in names.items()
            }
        self.read_values()

    def _state(self) -> "Iterator[Tuple[str, torch.Tensor]]":
        for parameter in parameters_in(self._optimizer):
            for key, tensor in tensors_in(self._optimizer.state.get(parameter, {})).items():
                yield state_name(self._names[parameter], key), local_of(tensor)

    def _view(self, name: str) -> torch.Tensor:
        place = self._places[name]
        flat = view_of(self._memory, place.start, place.dtype, (torch.Size(place.shape).numel(),))
        return flat.as_strided(place.shape, place.strides)

    def _is_in_place(self, tensor: torch.Tensor, name: str) -> bool:
        return tensor.numel() == 0 or tensor.data_ptr() == self._address_of(name)

    def _address_of(self, name: str) -> int:
        return self._memory.data_ptr() + self._places[name].start

    # ---- Values ----

    def write_values(self) -> None:
        """Writes what is not a tensor, at the end of an update."""
        if not self._has_written_values:
            self._values.write(values_of(self._optimizer), "the optimizer's state without its tensors")
            self._has_written_values = all(isinstance(value, torch.Tensor) for value in self._seen_state)
        self._groups.write(groups_of(self._groups_of), "what the optimizer's groups have besides parameters")

    def read_values(self) -> None:
        """Gives the optimizer what it had at the end of the update that is in the memory, if there was one."""
        if self._values.is_empty():
            return
        values = self._values.read()
        for number, parameter in enumerate(parameters_in(self._optimizer)):
            if number in values:
                self._optimizer.state[parameter].update(values[number][1])
        set_groups(self._groups_of, self._groups.read())

    # ---- Checking ----

    def note(self) -> None:
        """Notes that all writes to the parameters so far were right."""
        self._versions = self._versions_now()

    def _versions_now(self) -> List[int]:
        if self._has_shards:
            return [part.version() for part in self._parts.values()]
        return list(map(_version_of, self._plain))

    def check_unchanged(self, when: str, is_all_checked: bool = True) -> "Dict[str, torch.Tensor]":
        """Raises if something has written to parameters since note(). Returns what was replaced. Without is_all_checked
        it is not seen if state is the same object as before and has memory of another one (`state.data = ...`)."""
        replaced = self._elsewhere(is_all_checked)
        if self._versions == self._versions_now():
            return replaced
        for (name, part), version in zip(self._parts.items(), self._versions):
            if part.version() != version and name not in replaced:
                raise RuntimeError(
                    f"ddprun.keep: {name} was changed {when}, outside of optimizer.step(); a process that dies there "
                    "would leave it half changed, so make the change a part of the optimizer's step()"
                )
        return replaced

    def check_none_replaced(self, replaced: "Dict[str, torch.Tensor]") -> None:
        """Raises if there are some; after an update the memory says that it has it."""
        for name in replaced:
            raise RuntimeError(
                f"ddprun.keep: {name} was replaced after the update of a step; replace it before an update"
            )

    def take_back(self, replaced: "Dict[str, torch.Tensor]", has_them: bool) -> None:
        """Moves parameters and state that the program has replaced (`.to()`, `load_state_dict(assign=True)`) back, with
        their new values; has_them: the memory has those already."""
        for name, tensor in replaced.items():
            place = self._places[name]
            if name in self._parts and type(self._parts[name]) is not Part:
                raise RuntimeError(f"ddprun.keep: {name}, a shard, was replaced after keep(); it cannot be kept")
            if tensor.dtype != place.dtype or tuple(tensor.shape) != place.shape or not is_plain(tensor):
                raise RuntimeError(
                    f"ddprun.keep: {name} was {place.dtype} of {list(place.shape)} when it was kept, and has been "
                    f"replaced by {tensor.dtype} of {list(tensor.shape)} on {tensor.device}; it cannot be kept"
                )
            self._move(tensor, name, has_them)
        if replaced:
            self._seen_state = None

    def replicated_parameters(self) -> "Dict[str, torch.Tensor]":
        """Returns the bytes of the parameters that are taken for equal on all ranks."""
        places = [self._places[name] for name in self._parts if self.kinds[name] != OWN]
        return {
            place.name: self._memory[place.start : place.start + torch.Size(place.shape).numel() * place.dtype.itemsize]
            for place in places
        }

    def sample(self) -> torch.Tensor:
        """Returns some bytes of the parameters, by which it is seen that all were overwritten."""
        begin, end = self._layout.parameters
        return self._memory[begin:end:4093].clone()

    def _state_as_list(self) -> List[Any]:
        return [value for state in self._optimizer.state.values() for value in state.values()]

    def _note_places(self) -> None:
        """Notes where all tensors are to be, when none of them is to be moved any more."""
        self._seen_state, named = self._state_as_list(), [*self._users(), *self._state()]
        self._seen = [tensor for _, tensor in named]
        self._addresses = [self._address_of(name) if tensor.numel() else 0 for name, tensor in named]
        self._has_written_values = False

    def _has_noted_state(self) -> bool:
        """Returns whether the optimizer's state has the objects that it had. Numbers are new objects each time."""
        if self._seen_state is None:
            return False
        state = self._state_as_list()
        return len(state) == len(self._seen_state) and all(map(operator.is_, state, self._seen_state))

    def _users(self) -> "Iterator[Tuple[str, torch.Tensor]]":
        """Yields all tensors that are to have the memory of a parameter."""
        for name, part in self._parts.items():
            for tensor in part.users():
                yield name, tensor

    def _are_in_place(self, is_all_checked: bool) -> bool:
        """Returns whether all tensors have the memory that they had. Those of shards may be other objects by now."""
        if self._has_shards:
            users = [tensor for _, tensor in self._users()]
            count = len(users)
            seen = users + self._seen[count:] if is_all_checked else users
        else:
            count = len(self._parts)
            seen = self._seen if is_all_checked else self._seen[:count]
        return self._addresses[: len(seen)] == list(map(torch.Tensor.data_ptr, seen))

    def _elsewhere(self, is_all_checked: bool) -> "Dict[str, torch.Tensor]":
        if self._has_noted_state() and self._are_in_place(is_all_checked):
            return {}
        found = {name: tensor for name, tensor in self._users() if not self._is_in_place(tensor, name)}
        for name, tensor in self._state():
            if name in self._places and not self._is_in_place(tensor, name):
                found[name] = tensor
        return found


def _number_of(words: Any) -> int:
    return int.from_bytes(hashlib.sha256(repr(words).encode()).digest()[:8], "little")
