# SPDX-License-Identifier: BSD-3-Clause
"""What an optimizer has: parameters, tensors and other values of its state, and the settings of its groups."""
from typing import Any, Dict, List, Tuple

import torch
from torch.optim import Optimizer


def parameters_in(optimizer: Optimizer) -> List[torch.Tensor]:
    """Returns the parameters in their order. Those of two optimizers of one kind have equal numbers."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def parameters_of(model: torch.nn.Module, optimizer: Optimizer) -> "Dict[str, torch.Tensor]":
    """Returns the model's parameters by name, and those that only the optimizer has."""
    found: "Dict[str, torch.Tensor]" = dict(model.named_parameters())
    names = set(found.values())
    for number, parameter in enumerate(parameters_in(optimizer)):
        if parameter not in names:
            found[f"optimizer's parameter {number}"] = parameter
    return found


def tensors_in(state: "Dict[str, Any]") -> "Dict[str, torch.Tensor]":
    """Returns what of a parameter's state are tensors."""
    return {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}


def values_of(optimizer: Optimizer) -> "Dict[int, Tuple[List[str], Dict[str, Any]]]":
    """Returns, by the parameter's number, the names of its tensors in the state and what else that has."""
    state = {}
    for number, parameter in enumerate(parameters_in(optimizer)):
        if parameter in optimizer.state:
            own = optimizer.state[parameter]
            tensors = tensors_in(own)
            state[number] = sorted(tensors), {key: value for key, value in own.items() if key not in tensors}
    return state


def groups_of(optimizer: Optimizer) -> "List[Dict[str, Any]]":
    """Returns the settings of the optimizer's groups."""
    return [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]


def set_groups(optimizer: Optimizer, settings: "List[Dict[str, Any]]") -> None:
    """Gives the optimizer's groups these settings, such as learning rates. Tensors stay where they are."""
    for group, wanted in zip(optimizer.param_groups, settings):
        for key, value in wanted.items():
            if isinstance(group.get(key), torch.Tensor) and isinstance(value, torch.Tensor):
                group[key].copy_(value)
            else:
                group[key] = value
