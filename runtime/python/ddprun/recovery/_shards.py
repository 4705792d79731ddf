# SPDX-License-Identifier: BSD-3-Clause
"""What of a model and its optimizer is equal on all ranks, and what is this rank's own, found by their types:

    plain parameters            equal on all ranks after each step, but where the model has shards: then taken as own
    ZeroRedundancyOptimizer     its state is own, the parameters are equal: it sends them round in its step
    DTensor                     own: the local tensor. fully_shard() (FSDP2) reads it with its padding
    FlatParameter (FSDP1)       own: the local shard, of which the model's parameters may be views

A part knows the tensor in whose memory its numbers are, and how to have all that uses it use another memory.
"""
import gc
import sys
from typing import Any, Dict, Iterable, List, Tuple

import torch
from torch.optim import Optimizer

from ddprun.recovery._optimizer import parameters_of

REPLICATED, OWN = "replicated", "own"


class Part:
    """A plain parameter."""

    def __init__(self, parameter: torch.Tensor):
        self.parameter = parameter
        self.kind = REPLICATED

    def tensor(self) -> torch.Tensor:
        """Returns the tensor in whose memory its numbers are."""
        return self.parameter

    def users(self) -> List[torch.Tensor]:
        """Returns all tensors that begin where tensor() does."""
        return [self.tensor()]

    def move(self, there: torch.Tensor) -> None:
        """Has all that uses it use this memory, which has its numbers."""
        self.parameter.data = there

    def version(self) -> int:
        """Returns a number that another one follows when something writes to it."""
        return self.parameter._version


class _LocalPart(Part):
    """The local tensor of a DTensor."""

    def tensor(self) -> torch.Tensor:
        return local_of(self.parameter)

    def move(self, there: torch.Tensor) -> None:
        self.tensor().data = there

    def version(self) -> int:
        return self.tensor()._version


class _FullyShardedPart(_LocalPart):
    """A parameter of fully_shard(). It gathers a row of bytes that has the local tensor and padding behind it."""

    def __init__(self, parameter: torch.Tensor, fsdp: Any):
        super().__init__(parameter)
        self._fsdp = fsdp

    def tensor(self) -> torch.Tensor:
        row: torch.Tensor = self._fsdp._sharded_param_data
        return row

    def users(self) -> List[torch.Tensor]:
        return [self.tensor(), local_of(self.parameter)]

    def move(self, there: torch.Tensor) -> None:
        local = local_of(self.parameter)
        dimension = getattr(getattr(self._fsdp, "fsdp_placement", None), "dim", 0)
        length = local.size(dimension) if local.numel() > 0 else 0
        self._fsdp._sharded_param_data = there
        local.data = there.view(self._fsdp.padded_sharded_param_size).narrow(dimension, 0, length)

    def version(self) -> int:
        return local_of(self.parameter)._version


class _FlatPart(Part):
    """The local shard of FullyShardedDataParallel's FlatParameter. Between a forward pass and the end of the backward
    pass the parameter itself has the numbers of all ranks."""

    def __init__(self, parameter: Any, handle: Any):
        super().__init__(parameter)
        self._handle = handle

    def tensor(self) -> torch.Tensor:
        # The first forward pass makes the attribute, which has the parameter's memory.
        shard: torch.Tensor = getattr(self.parameter, "_local_shard", self.parameter)
        return shard

    def move(self, there: torch.Tensor) -> None:
        if self.parameter.data_ptr() != self.tensor().data_ptr():
            raise ValueError(
                "ddprun.keep: FullyShardedDataParallel has gathered its parameters; call keep() before its first "
                "forward pass"
            )
        self.parameter.data = there
        if hasattr(self.parameter, "_local_shard"):
            self.parameter._local_shard = there
        if self._handle._use_orig_params:
            self._handle._use_sharded_views()

    def version(self) -> int:
        return 0  # each forward pass replaces what the parameter has


class Parts:
    """All parameters of a model and its optimizer."""

    def __init__(self, model: torch.nn.Module, optimizer: Optimizer):
        self.is_zero = is_zero(optimizer)
        if self.is_zero:
            _check_zero(optimizer)
        self.parameters = parameters_of(model, optimizer)
        self.by_name = _parts_of(self.parameters)
        has_shards = any(type(part) is not Part for part in self.by_name.values())
        self.is_sharded = self.is_zero or has_shards
        if has_shards:
            for part in self.by_name.values():
                part.kind = OWN
        self.kind_of_state = OWN if self.is_sharded else REPLICATED
        # The optimizer that has the state.
        self.optimizer: Optimizer = optimizer.optim if self.is_zero else optimizer  # type: ignore[attr-defined]


def is_zero(optimizer: Optimizer) -> bool:
    """Returns whether it is PyTorch's ZeroRedundancyOptimizer."""
    return _is_a("ZeroRedundancyOptimizer", optimizer)


def is_distributed(tensor: torch.Tensor) -> bool:
    """Returns whether it is a DTensor."""
    return _is_a("DTensor", tensor)


def _is_a(name: str, one: Any) -> bool:
    """Returns whether it is of a class with this name, whose module need not be loaded."""
    return any(base.__name__ == name for base in type(one).__mro__)


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the local tensor of a DTensor, and other tensors as they are."""
    local: torch.Tensor = tensor._local_tensor if is_distributed(tensor) else tensor  # type: ignore[attr-defined]
    return local


def like(parameter: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
    """Returns a DTensor with this local tensor that is spread over ranks as the parameter is."""
    shared: Any = parameter
    its_class: Any = next(base for base in type(parameter).__mro__ if base.__name__ == "DTensor")
    made: torch.Tensor = its_class.from_local(
        local, shared.device_mesh, shared.placements, run_check=False, shape=shared.shape, stride=shared.stride()
    )
    return made


def _check_zero(optimizer: Any) -> None:
    for option in ("_overlap_with_ddp", "parameters_as_bucket_view"):
        if getattr(optimizer, option, False):
            raise ValueError(
                f"ddprun.keep: ZeroRedundancyOptimizer({option.lstrip('_')}=True) has the parameters in memory of its "
                "own; leave the option out"
            )


def _parts_of(parameters: "Dict[str, torch.Tensor]") -> "Dict[str, Part]":
    fsdp = {id(one.sharded_param): one for one in _objects(_FSDP2)}
    handles = _objects(_FSDP1)
    flat = {id(one.flat_param): one for one in handles}
    views = {id(view): one for one in handles for view in getattr(one.flat_param, "_params", None) or []}
    parts: "Dict[str, Part]" = {}
    for name, parameter in parameters.items():
        number = id(parameter)
        if number in flat:
            parts[name] = _FlatPart(parameter, flat[number])
        elif number in views:
            handle = views[number]  # several parameters have one
            if not any(part.parameter is handle.flat_param for part in parts.values()):
                parts[f"the flat parameter with {name}"] = _FlatPart(handle.flat_param, handle)
        elif number in fsdp:
            parts[name] = _FullyShardedPart(parameter, fsdp[number])
        elif is_distributed(parameter):
            _check_distributed(name, parameter)
            parts[name] = _LocalPart(parameter)
        else:
            parts[name] = Part(parameter)
    return parts


def _check_distributed(name: str, parameter: Any) -> None:
    if any(placement.is_partial() for placement in parameter.placements):
        raise ValueError(f"ddprun.keep: {name} is a DTensor of partial sums; only shards and whole tensors are kept")


_FSDP1 = [("torch.distributed.fsdp._flat_param", "FlatParamHandle")]
_FSDP2 = [
    ("torch.distributed.fsdp._fully_shard._fsdp_param", "FSDPParam"),
    ("torch.distributed._composable.fsdp._fsdp_param", "FSDPParam"),  # before PyTorch 2.6
]


def _objects(classes: "Iterable[Tuple[str, str]]") -> List[Any]:
    """Returns the objects of these classes, in any order, if the program uses them."""
    loaded = tuple({getattr(sys.modules[module], name) for module, name in classes if module in sys.modules})
    return [one for one in gc.get_objects() if issubclass(type(one), loaded)] if loaded else []
