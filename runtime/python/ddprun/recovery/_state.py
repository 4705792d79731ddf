# SPDX-License-Identifier: BSD-3-Clause
"""What a step changes besides parameters and the optimizer: buffers of the model, and objects such as a scheduler."""
from typing import Any, Dict

import torch


class Buffers:
    """The buffers of a model that a state_dict has: the others are made by the model itself."""

    def __init__(self, model: torch.nn.Module):
        self._model = model
        self.find()

    def find(self) -> None:
        """Looks for them. It takes 1 µs for each module of the model: too much for each step."""
        self._places = [
            (f"{path}.{name}", module._buffers, name)
            for path, module in self._model.named_modules()
            for name in module._buffers
            if name not in module._non_persistent_buffers_set
        ]

    def get(self) -> "Dict[str, torch.Tensor]":
        """Returns the buffers as they are now."""
        found = {path: buffers.get(name) for path, buffers, name in self._places}
        return {path: buffer for path, buffer in found.items() if buffer is not None}

    @torch.no_grad()
    def set(self, values: "Dict[str, torch.Tensor]") -> None:
        """Gives them the values, which get() has returned."""
        for path, buffers, name in self._places:
            buffer = buffers.get(name)
            if buffer is None:
                continue
            if path not in values:
                raise RuntimeError(f"the buffer {path} of the model was not there when the step was done")
            if buffer.shape == values[path].shape:
                buffer.copy_(values[path])
            else:
                buffers[name] = values[path]


def check_object(one: Any, function: str = "ddprun.keep") -> None:
    """Raises ValueError for an object whose state is not known; `function` was given it."""
    has_state = hasattr(one, "state_dict") and hasattr(one, "load_state_dict")
    if not has_state and not isinstance(one, (torch.Tensor, torch.Generator)):
        raise ValueError(
            f"{function}: a {type(one).__name__} cannot be kept: it has no state_dict() and load_state_dict(), and is "
            "no tensor or torch.Generator"
        )


def state_of_object(one: Any) -> Any:
    """Returns the state, which changes with the object."""
    if isinstance(one, torch.Generator):
        return one.get_state()
    return one if isinstance(one, torch.Tensor) else one.state_dict()


@torch.no_grad()
def restore_object(one: Any, state: Any) -> None:
    """Gives an object a state, which is the object's from now on."""
    if isinstance(one, torch.Generator):
        one.set_state(state)
    elif isinstance(one, torch.Tensor):
        one.copy_(state)
    else:
        one.load_state_dict(state)
