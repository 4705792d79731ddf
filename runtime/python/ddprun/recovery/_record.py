# SPDX-License-Identifier: BSD-3-Clause
"""Objects in memory of a fixed size: what a record holds, beside the tensors that are kept in place.

    8 bytes: size of the pickle | the pickle, with each tensor's type and shape | the tensors, each aligned to 64 bytes

Tensors are copied and not pickled, which takes about 1 µs each.
"""
import io
import pickle
import struct
from typing import Any, List, Tuple

import torch

from ddprun.recovery._shards import is_distributed

_SIZE = struct.Struct("=q")
_LINE = 64


def aligned(size: int, to: int = _LINE) -> int:
    """Returns the size, rounded up to a multiple."""
    return (size + to - 1) // to * to


def is_plain(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor is nothing but numbers in the CPU's memory."""
    return tensor.device.type == "cpu" and tensor.layout == torch.strided and not tensor.is_quantized


def _tensor(dtype: torch.dtype, shape: "Tuple[int, ...]") -> torch.Tensor:
    """Stands in a pickle for the tensor that comes next; _Unpickler has another function for it."""
    raise NotImplementedError


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO):
        super().__init__(file, 5)
        self.tensors: List[torch.Tensor] = []

    # Called for tensors and other objects, and not, as persistent_id() is, for each number and text.
    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, torch.Tensor) or not is_plain(obj):
            return NotImplemented
        if is_distributed(obj):
            raise ValueError("ddprun.keep: a DTensor cannot be copied at each step; give its to_local() in `extra`")
        self.tensors.append(obj)
        return _tensor, (obj.dtype, tuple(obj.shape))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, memory: torch.Tensor, place: int):
        super().__init__(file)
        self._memory, self._place = memory, place

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        return self._read if found is _tensor else found

    def _read(self, dtype: torch.dtype, shape: "Tuple[int, ...]") -> torch.Tensor:
        tensor: torch.Tensor = torch.empty(shape, dtype=dtype)
        tensor.copy_(view_of(self._memory, self._place, dtype, shape))
        self._place += space_of(tensor)
        return tensor


def view_of(memory: torch.Tensor, place: int, dtype: torch.dtype, shape: "Tuple[int, ...]") -> torch.Tensor:
    """Returns the tensor of that type and shape that begins at a place of `memory`, which is of bytes."""
    count = torch.Size(shape).numel()
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    return memory[place : place + count * dtype.itemsize].view(dtype).view(shape)


class Record:
    """Memory for an object, which is written and read as a whole."""

    def __init__(self, memory: Any):
        self.bytes = memoryview(memory).cast("B")  # any writable buffer
        self._tensor = torch.frombuffer(memory, dtype=torch.uint8)

    def is_empty(self) -> bool:
        """Returns whether nothing was written to the memory, which was zeroed."""
        return _SIZE.unpack_from(self.bytes, 0) == (0,)

    def write(self, obj: Any, what: str) -> None:
        """Replaces the object. `what` says in an error what it is."""
        pickled, tensors = _pickled(obj)
        place = _size_of(pickled)
        needed = _room_for(pickled, tensors)
        if needed > len(self.bytes):
            raise RuntimeError(
                f"ddprun.keep: {what} has {needed} bytes, and there is room for {len(self.bytes)}: "
                "it has grown since keep() was called (keep(..., record_bytes=) gives it more)"
            )
        _SIZE.pack_into(self.bytes, 0, 0)  # the size says that the rest is there
        self.bytes[_SIZE.size : _SIZE.size + len(pickled)] = pickled
        for tensor in tensors:
            view_of(self._tensor, place, tensor.dtype, tuple(tensor.shape)).copy_(tensor.detach())
            place += space_of(tensor)
        _SIZE.pack_into(self.bytes, 0, len(pickled))

    def read(self) -> Any:
        """Returns the object; its tensors are new ones."""
        (size,) = _SIZE.unpack_from(self.bytes, 0)
        pickled = bytes(self.bytes[_SIZE.size : _SIZE.size + size])
        return _Unpickler(io.BytesIO(pickled), self._tensor, _size_of(pickled)).load()


def packed(obj: Any) -> torch.Tensor:
    """Returns an object as bytes, from which unpacked() makes it."""
    memory = bytearray(size_of(obj))
    Record(memory).write(obj, "an object")
    return torch.frombuffer(memory, dtype=torch.uint8)


def unpacked(whole: torch.Tensor) -> Any:
    """Returns what was given to packed()."""
    return Record(bytearray(whole.numpy())).read()


def size_of(obj: Any) -> int:
    """Returns how many bytes a Record needs for the object."""
    return _room_for(*_pickled(obj))


def saved_size(start: bytes) -> int:
    """Returns the size of an object without tensors in a Record, of which these are the first bytes; 0: there is none."""
    size: int = _SIZE.unpack_from(start)[0] if len(start) >= _SIZE.size else 0
    return _size_of_pickle(size) if size > 0 else 0


def space_of(tensor: torch.Tensor) -> int:
    """Returns the bytes that a tensor takes, up to where the next one may begin."""
    return aligned(tensor.numel() * tensor.element_size())


def _pickled(obj: Any) -> "Tuple[bytes, List[torch.Tensor]]":
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(obj)
    return file.getvalue(), pickler.tensors


def _size_of(pickled: bytes) -> int:
    return _size_of_pickle(len(pickled))


def _size_of_pickle(size: int) -> int:
    return aligned(_SIZE.size + size)


def _room_for(pickled: bytes, tensors: List[torch.Tensor]) -> int:
    return _size_of(pickled) + sum(map(space_of, tensors))
