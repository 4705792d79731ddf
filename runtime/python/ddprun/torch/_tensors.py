# SPDX-License-Identifier: BSD-3-Clause
"""Tensors as memory: what libddp can use as it is, what must be copied first, what is refused."""
from __future__ import annotations

from typing import Any, Optional, Sequence

import torch

from ddprun.torch._libddp import DTYPES, UINT8, Memory


def plain(tensor: torch.Tensor) -> bool:
    """Returns whether the tensor's memory holds its elements one after the other, in the CPU's memory."""
    if not tensor.is_cpu or tensor.layout is not torch.strided or not tensor.is_contiguous():
        return False
    return not tensor.is_conj() and not tensor.is_neg()


def memory_for(count: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns memory of the CPU, also where torch.set_default_device() names another device."""
    return torch.empty(count, dtype=dtype, device="cpu")


def give_back(memory: torch.Tensor, tensor: torch.Tensor) -> None:
    """Copies a result into the tensor that it is for, unless it is there. Autograd does not see it, as it sees none of
    a backend's writes: so the tensor may be a leaf that requires a gradient, or one of inference mode."""
    if memory is not tensor:
        with torch.inference_mode():
            tensor.copy_(memory)


def moved(tensor: torch.Tensor) -> Memory:
    """Returns a contiguous tensor's memory for an operation that only moves it: of any type, as bytes if need be."""
    dtype = DTYPES.get(tensor.dtype)
    if dtype is None:
        return tensor.data_ptr(), tensor.nbytes, UINT8
    return tensor.data_ptr(), tensor.numel(), dtype


def is_in_cpu_memory(result: Any) -> bool:
    """Returns whether a work's result is one or more tensors, or lists of them, all in the memory of the CPU."""
    if isinstance(result, torch.Tensor):
        return result.is_cpu
    return isinstance(result, (list, tuple)) and len(result) > 0 and all(map(is_in_cpu_memory, result))


def one(what: str, tensors: Sequence[Any]) -> Any:
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise ValueError(f"{what}: takes one tensor, but was given {len(tensors)}")
    return tensors[0]


def same(what: str, tensors: Sequence[torch.Tensor], like: torch.Tensor, count: Optional[int] = None) -> None:
    """Requires `count` tensors with as many elements as `like`, and of its type."""
    if count is not None and len(tensors) != count:
        raise ValueError(f"{what}: needs a list of {count} tensors, one for each rank, but was given {len(tensors)}")
    for tensor in tensors:
        if tensor.dtype != like.dtype or tensor.numel() != like.numel():
            raise ValueError(
                f"{what}: all tensors must have one type and size, but one is {tensor.dtype} of {tuple(tensor.shape)}, "
                f"another {like.dtype} of {tuple(like.shape)}"
            )


def adjacent(tensors: Sequence[torch.Tensor]) -> bool:
    """Returns whether the tensors lie one after the other, as those of chunk() do: then nothing needs to be copied."""
    if not all(map(plain, tensors)):
        return False
    at = tensors[0].data_ptr()
    for tensor in tensors:
        if tensor.data_ptr() != at:
            return False
        at += tensor.nbytes
    return True


def joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the content of the tensors, one after the other."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def spread(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    at = 0
    for tensor in tensors:
        give_back(flat[at : at + tensor.numel()].view(tensor.shape), tensor)
        at += tensor.numel()
