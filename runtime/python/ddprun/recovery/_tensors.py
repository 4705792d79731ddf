# SPDX-License-Identifier: BSD-3-Clause
"""Moves a model's parameters and its optimizer's state into kept memory, where they stay:

    values     which tensors the optimizer's state has, and what it has besides; a Record
    groups     the settings of the optimizer's groups; a Record
    tensors    parameters, then the optimizer's state, each aligned to 64 bytes

Only places change: parameters and state stay the same Python objects. The optimizer makes its state in its first step,
so what it will be is found out with copies, and it moves when it is there.

A model has hundreds of tensors, and three times in a step it is checked that they are in their places. So a check
compares lists, without a name, and most steps write no values.
"""
import copy
import hashlib
import operator
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch.optim import Optimizer

from ddprun.recovery._record import Record, aligned, is_plain, size_of, space_of, view_of


class Place(NamedTuple):
    """Where a tensor lies in kept memory."""

    name: str
    dtype: torch.dtype
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    start: int  # in bytes from the first tensor


_version_of = operator.attrgetter("_version")


class KeptTensors:
    """What of a model and its optimizer lies in kept memory: all ranks have it equal after each update."""

    def __init__(self, model: torch.nn.Module, optimizer: Optimizer):
        if any(base.__name__ == "ZeroRedundancyOptimizer" for base in type(optimizer).__mro__):
            raise ValueError("ddprun.keep: ZeroRedundancyOptimizer has state that no other rank has; it is not kept")
        self._optimizer = optimizer
        self._parameters = _parameters_of(model, optimizer)
        for name, parameter in self._parameters.items():
            _check(name, parameter)
        self._names = {parameter: name for name, parameter in self._parameters.items()}
        copied = _copy_after_a_step(optimizer)
        self._places: Dict[str, Place] = {}
        self._end = 0
        for name, parameter in self._parameters.items():
            self._add_place(name, parameter)
        self._parameters_end = self._end
        for theirs, own in zip(_parameters_in(copied), _parameters_in(optimizer)):
            for key, tensor in sorted(_tensors_in(copied.state.get(theirs, {})).items()):
                _check(f"{key} of {self._names[own]}", tensor)
                self._add_place(_state_name(self._names[own], key), tensor)
        self._sizes = [aligned(2 * size_of(part) + 4096) for part in (_values_of(copied), groups_of(copied))]
        self.size = sum(self._sizes) + self._end
        words = repr((type(optimizer).__qualname__, self._sizes, list(self._places.values())))
        self.layout = int.from_bytes(hashlib.sha256(words.encode()).digest()[:8], "little")
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._values: Any = None
        self._groups: Any = None
        self._versions: List[int] = []
        # What the optimizer's state had when all was in its place, and all tensors with the addresses of their places.
        self._seen_state: "Optional[List[Any]]" = None
        self._seen: List[torch.Tensor] = []
        self._addresses: List[int] = []
        self._has_written_values = False  # what that state has besides tensors

    def _add_place(self, name: str, tensor: torch.Tensor) -> None:
        strides = tensor.stride() if _is_dense(tensor) else torch.empty(tensor.shape, device="meta").stride()
        self._places[name] = Place(name, tensor.dtype, tuple(tensor.shape), tuple(strides), self._end)
        self._end += space_of(tensor)

    # ---- Moving ----

    def move_into(self, memory: Any, found: bool) -> None:
        """Moves all that is there. found: the memory has the values."""
        whole, (values, groups) = memoryview(memory).cast("B"), self._sizes
        self._memory = torch.frombuffer(memory, dtype=torch.uint8)[values + groups :]
        self._values, self._groups = Record(whole[:values]), Record(whole[values : values + groups])
        for name, parameter in self._parameters.items():
            self._move(parameter, name, found)
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

    def _move(self, tensor: torch.Tensor, name: str, has_it: bool) -> None:
        there = self._view(name)
        if not has_it:
            there.copy_(tensor.detach())
        tensor.data = there

    def _attach_state(self) -> None:
        parameters = _parameters_in(self._optimizer)
        for number, (keys, _) in self._values.read().items():
            parameter = parameters[number]
            tensors = {key: self._view(_state_name(self._names[parameter], key)) for key in keys}
            self._optimizer.state[parameter] = tensors
        self.read_values()

    def _state(self) -> "Iterator[Tuple[str, torch.Tensor]]":
        for parameter in _parameters_in(self._optimizer):
            for key, tensor in _tensors_in(self._optimizer.state.get(parameter, {})).items():
                yield _state_name(self._names[parameter], key), tensor

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
            self._values.write(_values_of(self._optimizer), "the optimizer's state without its tensors")
            self._has_written_values = all(isinstance(value, torch.Tensor) for value in self._seen_state)
        self._groups.write(groups_of(self._optimizer), "what the optimizer's groups have besides parameters")

    def read_values(self) -> None:
        """Gives the optimizer what it had at the end of the update that is in the memory, if there was one."""
        if self._values.is_empty():
            return
        values = self._values.read()
        for number, parameter in enumerate(_parameters_in(self._optimizer)):
            if number in values:
                self._optimizer.state[parameter].update(values[number][1])
        set_groups(self._optimizer, self._groups.read())

    # ---- Checking ----

    def note(self) -> None:
        """Notes that all writes to the parameters so far were right."""
        self._versions = list(map(_version_of, self._parameters.values()))

    def check_unchanged(self, when: str, is_all_checked: bool = True) -> "Dict[str, torch.Tensor]":
        """Raises if something has written to parameters since note(). Returns what was replaced. Without is_all_checked
        it is not seen if state is the same object as before and has memory of another one (`state.data = ...`)."""
        replaced = self._elsewhere(is_all_checked)
        if self._versions == list(map(_version_of, self._parameters.values())):
            return replaced
        for (name, parameter), version in zip(self._parameters.items(), self._versions):
            if parameter._version != version and name not in replaced:
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
            if tensor.dtype != place.dtype or tuple(tensor.shape) != place.shape or not is_plain(tensor):
                raise RuntimeError(
                    f"ddprun.keep: {name} was {place.dtype} of {list(place.shape)} when it was kept, and has been "
                    f"replaced by {tensor.dtype} of {list(tensor.shape)} on {tensor.device}; it cannot be kept"
                )
            self._move(tensor, name, has_them)
        if replaced:
            self._seen_state = None

    def sample(self) -> torch.Tensor:
        """Returns some bytes of the parameters, by which it is seen that all were overwritten."""
        return self._memory[: self._parameters_end : 4093].clone()

    def _state_as_list(self) -> List[Any]:
        return [value for state in self._optimizer.state.values() for value in state.values()]

    def _note_places(self) -> None:
        """Notes where all tensors are to be, when none of them is to be moved any more."""
        self._seen_state, named = self._state_as_list(), [*self._parameters.items(), *self._state()]
        self._seen = [tensor for _, tensor in named]
        self._addresses = [self._address_of(name) if tensor.numel() else 0 for name, tensor in named]
        self._has_written_values = False

    def _has_noted_state(self) -> bool:
        """Returns whether the optimizer's state has the objects that it had. Numbers are new objects each time."""
        if self._seen_state is None:
            return False
        state = self._state_as_list()
        return len(state) == len(self._seen_state) and all(map(operator.is_, state, self._seen_state))

    def _elsewhere(self, is_all_checked: bool) -> "Dict[str, torch.Tensor]":
        count = len(self._seen) if is_all_checked else len(self._parameters)
        if self._has_noted_state() and self._addresses[:count] == list(map(torch.Tensor.data_ptr, self._seen[:count])):
            return {}
        found = {name: p for name, p in self._parameters.items() if not self._is_in_place(p, name)}
        for name, tensor in self._state():
            if name in self._places and not self._is_in_place(tensor, name):
                found[name] = tensor
        return found


def set_groups(optimizer: Optimizer, settings: "List[Dict[str, Any]]") -> None:
    """Gives the optimizer's groups these settings, such as learning rates. Tensors stay where they are."""
    for group, wanted in zip(optimizer.param_groups, settings):
        for key, value in wanted.items():
            if isinstance(group.get(key), torch.Tensor) and isinstance(value, torch.Tensor):
                group[key].copy_(value)
            else:
                group[key] = value


def groups_of(optimizer: Optimizer) -> "List[Dict[str, Any]]":
    """Returns the settings of the optimizer's groups."""
    return [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]


def _values_of(optimizer: Optimizer) -> "Dict[int, Tuple[List[str], Dict[str, Any]]]":
    """Returns, by the parameter's number, the names of its tensors in the state and what else that has."""
    state = {}
    for number, parameter in enumerate(_parameters_in(optimizer)):
        if parameter in optimizer.state:
            own = optimizer.state[parameter]
            tensors = _tensors_in(own)
            state[number] = sorted(tensors), {key: value for key, value in own.items() if key not in tensors}
    return state


def _parameters_in(optimizer: Optimizer) -> List[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _parameters_of(model: torch.nn.Module, optimizer: Optimizer) -> "Dict[str, torch.Tensor]":
    """Returns the model's parameters by name, and those that only the optimizer has."""
    found: "Dict[str, torch.Tensor]" = dict(model.named_parameters())
    names = set(found.values())
    for number, parameter in enumerate(_parameters_in(optimizer)):
        if parameter not in names:
            found[f"optimizer's parameter {number}"] = parameter
    return found


def _tensors_in(state: "Dict[str, Any]") -> "Dict[str, torch.Tensor]":
    return {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}


def _state_name(parameter: str, key: str) -> str:
    return f"{parameter}: {key}"


def _is_dense(tensor: torch.Tensor) -> bool:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if tensor.is_contiguous():
        return True
    return tensor.dim() in formats and tensor.is_contiguous(memory_format=formats[tensor.dim()])


def _check(name: str, tensor: torch.Tensor) -> None:
    if tensor.device.type != "cpu":
        raise ValueError(
            f"ddprun.keep: {name} is on {tensor.device}; only the CPU's memory outlives a process "
            "(train without keep(), and go on from checkpoints)"
        )
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or not is_plain(tensor):
        raise ValueError(
            f"ddprun.keep: {name} is a {type(tensor).__name__} ({tensor.layout}); only plain tensors are kept"
        )


def _copy_after_a_step(optimizer: Optimizer) -> Optimizer:
    """Returns a copy of the optimizer after a step without gradients: it shows what state the optimizer makes."""
    state = torch.get_rng_state()
    copied = copy.deepcopy(optimizer)
    for parameter in _parameters_in(copied):
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
