# SPDX-License-Identifier: BSD-3-Clause
"""The random generators of this process: PyTorch's, Python's and NumPy's, and those that a loader draws from."""
import array
import ctypes
import hashlib
import random
import sys
from typing import Any, Dict, Iterable, List

import torch

State = Dict[str, Any]


def state_of_generators(others: Iterable[torch.Generator] = ()) -> State:
    """Returns what all generators will draw, as an object that is quick to copy."""
    version, numbers, gauss = random.getstate()
    state: State = {
        "torch": _bytes_of(torch.get_rng_state()),
        "python": (version, array.array("I", numbers).tobytes(), gauss),
        "others": [_bytes_of(other.get_state()) for other in others],
    }
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, keys, *rest = numpy.random.get_state()
        state["numpy"] = (kind, keys.tobytes(), *rest)
    return state


def set_generators(state: State, others: Iterable[torch.Generator] = ()) -> None:
    """Has all generators draw what they would have drawn when the state was taken."""
    torch.set_rng_state(_tensor_of(state["torch"]))
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(array.array("I", numbers)), gauss))
    for other, its in zip(others, state["others"]):
        other.set_state(_tensor_of(its))
    if "numpy" in state:
        import numpy

        kind, keys, *rest = state["numpy"]
        numpy.random.set_state((kind, numpy.frombuffer(keys, dtype=numpy.uint32), *rest))


def seed_generators(*of: Any) -> None:
    """Has PyTorch's, Python's and NumPy's generators draw numbers that depend on nothing but these values."""
    number = int.from_bytes(hashlib.sha256(repr(of).encode()).digest()[:8], "little")
    torch.default_generator.manual_seed(number)
    random.seed(number)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(number % 2**32)


def _bytes_of(state: torch.Tensor) -> bytes:
    return ctypes.string_at(state.data_ptr(), state.numel())


def _tensor_of(state: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)


def generators_of(loader: Any) -> List[torch.Generator]:
    """Returns the generators of a loader's own, each once."""
    found: List[torch.Generator] = []
    batch_sampler = getattr(loader, "batch_sampler", None)
    for owner in (loader, getattr(loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None)):
        generator = getattr(owner, "generator", None)
        if isinstance(generator, torch.Generator) and not any(generator is other for other in found):
            found.append(generator)
    return found
