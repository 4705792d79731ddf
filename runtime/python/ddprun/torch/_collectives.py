# SPDX-License-Identifier: BSD-3-Clause
"""The collectives of a c10d backend, as PyTorch calls them. Each runs inside its call.

The names are those of PyTorch's trampolines (c10d/py/PyBackend.hpp, PyProcessGroup.hpp): what is called from C++ is
found by its name in Python. Some have two names, an older and a newer one.
"""
from __future__ import annotations

import ctypes
from datetime import timedelta
from typing import Any, List, Sequence

import torch

from ddprun.torch import _libddp as c
from ddprun.torch._group import UNSET, GroupMember, done
from ddprun.torch._libddp import DTYPES, Reduction, issue
from ddprun.torch._session import milliseconds
from ddprun.torch._tensors import adjacent, give_back, joined, memory_for, moved, one, plain, same, spread


class Collectives(GroupMember):
    """The collectives, each of which has ended when its method returns."""

    def _all_reduce(self, tensor: torch.Tensor, reduction: Reduction, timeout: int) -> None:
        memory = self._contiguous("all_reduce", tensor)
        view, dtype, exact = self._reducible("all_reduce", memory, reduction)
        issue(self._handle, c.ALL_REDUCE, timeout, output=(view.data_ptr(), view.numel(), dtype), reduction=exact)
        give_back(memory, tensor)

    def allreduce(self, tensors: List[torch.Tensor], opts: Any = None) -> Any:
        """Reduces one tensor in place."""
        timeout = self._begin(opts)
        self._all_reduce(one("all_reduce", tensors), self._reduction("all_reduce", opts), timeout)
        return done(tensors)

    def allreduce_coalesced(self, tensors: List[torch.Tensor], opts: Any = None) -> Any:
        """Reduces several tensors in place."""
        timeout, reduction = self._begin(opts), self._reduction("all_reduce", opts)
        for tensor in tensors:
            self._all_reduce(tensor, reduction, timeout)
        return done(tensors)

    def allreduce_sparse(self, tensors: List[torch.Tensor], opts: Any = None) -> Any:
        """Refuses sparse tensors."""
        self._refuse("all_reduce", one("all_reduce", tensors))

    def reduce(self, tensors: List[torch.Tensor], opts: Any = None) -> Any:
        """Reduces one tensor in place on the root. What the others' become is not specified."""
        timeout, reduction = self._begin(opts), self._reduction("reduce", opts)
        tensor, root = one("reduce", tensors), opts.rootRank
        memory = self._contiguous("reduce", tensor)
        view, dtype, exact = self._reducible("reduce", memory, reduction)
        buffer = (view.data_ptr(), view.numel(), dtype)
        issue(self._handle, c.REDUCE, timeout, output=buffer, root=root, reduction=exact)
        if self.rank() == root:
            give_back(memory, tensor)
        return done(tensors)

    def broadcast(self, tensors: List[torch.Tensor], opts: Any = None) -> Any:
        """Copies the root's tensor into the others'."""
        timeout = self._begin(opts)
        tensor = one("broadcast", tensors)
        memory = self._contiguous("broadcast", tensor)
        issue(self._handle, c.BROADCAST, timeout, output=moved(memory), root=opts.rootRank)
        give_back(memory, tensor)
        return done(tensors)

    def _all_gather(self, output: torch.Tensor, given: torch.Tensor, timeout: int) -> None:
        memory = self._contiguous("all_gather", output)
        source = self._contiguous("all_gather", given)
        size = self.size()
        if output.dtype != given.dtype or output.numel() != given.numel() * size:
            raise ValueError(
                f"all_gather: the output must have {size} times the input's elements and its type, but is "
                f"{output.dtype} of {tuple(output.shape)} for {given.dtype} of {tuple(given.shape)}"
            )
        issue(self._handle, c.ALL_GATHER, timeout, moved(source), moved(memory))
        give_back(memory, output)

    def _all_gather_list(self, outputs: List[torch.Tensor], given: torch.Tensor, timeout: int) -> None:
        source = self._contiguous("all_gather", given)
        same("all_gather", outputs, given, self.size())
        if adjacent(outputs):
            address, count, dtype = moved(outputs[0])
            whole = (address, count * len(outputs), dtype)
            issue(self._handle, c.ALL_GATHER, timeout, moved(source), whole)
            return
        flat = memory_for(source.numel() * len(outputs), source.dtype)
        issue(self._handle, c.ALL_GATHER, timeout, moved(source), moved(flat))
        spread(flat, outputs)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Gathers one tensor of each rank into a list."""
        timeout = self._begin(opts)
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        self._all_gather_list(one("all_gather", outputs), one("all_gather", inputs), timeout)
        return done(outputs)

    def allgather_coalesced(
        self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any = None
    ) -> Any:
        """Gathers several tensors of each rank: outputs[r] is the list of rank r's."""
        timeout = self._begin(opts)
        if any(len(output) != len(inputs) for output in outputs):
            raise ValueError(f"all_gather: each list of outputs must have {len(inputs)} tensors, as the inputs")
        for i, given in enumerate(inputs):
            self._all_gather_list([output[i] for output in outputs], given, timeout)
        return done(outputs)

    def all_gather_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Any:
        """Gathers one tensor of each rank into one tensor."""
        self._all_gather(output, given, self._begin(opts))
        return done([output])

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = None
    ) -> Any:
        """Gathers several tensors of each rank, each into one tensor."""
        timeout = self._begin(opts)
        for output, given in zip(outputs, inputs):
            self._all_gather(output, given, timeout)
        return done(outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any = None) -> Any:
        """Gathers one tensor of each rank into a list on the root."""
        timeout, root = self._begin(opts), opts.rootRank
        given = self._contiguous("gather", one("gather", inputs))
        if self.rank() != root:
            if outputs and outputs[0]:
                raise ValueError("gather: a list of outputs was given on a rank that is not the root")
            issue(self._handle, c.GATHER, timeout, moved(given), root=root)
            return done([])
        into = one("gather", outputs)
        same("gather", into, given, self.size())
        flat = memory_for(given.numel() * len(into), given.dtype)
        issue(self._handle, c.GATHER, timeout, moved(given), moved(flat), root)
        spread(flat, into)
        return done(outputs)

    def gather_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Any:
        """Gathers one tensor of each rank into one tensor on the root."""
        timeout, root = self._begin(opts), opts.rootRank
        source = self._contiguous("gather", given)
        if self.rank() != root:
            issue(self._handle, c.GATHER, timeout, moved(source), root=root)
            return done([output])
        memory = self._contiguous("gather", output)
        issue(self._handle, c.GATHER, timeout, moved(source), moved(memory), root)
        give_back(memory, output)
        return done([output])

    gather_into_tensor = gather_single

    def scatter(self, outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]], opts: Any = None) -> Any:
        """Gives each rank one tensor of the root's list."""
        timeout, root = self._begin(opts), opts.rootRank
        output = one("scatter", outputs)
        memory = self._contiguous("scatter", output)
        if self.rank() != root:
            if inputs and inputs[0]:
                raise ValueError("scatter: a list of inputs was given on a rank that is not the root")
            issue(self._handle, c.SCATTER, timeout, output=moved(memory), root=root)
        else:
            parts = [self._contiguous("scatter", part) for part in one("scatter", inputs)]
            same("scatter", parts, output, self.size())
            flat = joined(parts)
            issue(self._handle, c.SCATTER, timeout, moved(flat), moved(memory), root)
        give_back(memory, output)
        return done(outputs)

    def _reduce_scatter(self, output: torch.Tensor, given: torch.Tensor, reduction: Reduction, timeout: int) -> None:
        memory = self._contiguous("reduce_scatter", output)
        source = self._contiguous("reduce_scatter", given)
        size = self.size()
        if output.dtype != given.dtype or output.numel() * size != given.numel():
            raise ValueError(
                f"reduce_scatter: the input must have {size} times the output's elements and its type, but is "
                f"{given.dtype} of {tuple(given.shape)} for {output.dtype} of {tuple(output.shape)}"
            )
        part, dtype, exact = self._reducible("reduce_scatter", memory, reduction)
        whole, _, _ = self._reducible("reduce_scatter", source, reduction)
        from_, to = (whole.data_ptr(), whole.numel(), dtype), (part.data_ptr(), part.numel(), dtype)
        issue(self._handle, c.REDUCE_SCATTER, timeout, from_, to, reduction=exact)
        give_back(memory, output)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Reduces a list of tensors, of which each rank gets the one at its place."""
        timeout, reduction = self._begin(opts), self._reduction("reduce_scatter", opts)
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        output, parts = one("reduce_scatter", outputs), one("reduce_scatter", inputs)
        same("reduce_scatter", parts, output, self.size())
        parts = [self._contiguous("reduce_scatter", part) for part in parts]
        self._reduce_scatter(output, joined(parts), reduction, timeout)
        return done(outputs)

    def reduce_scatter_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Any:
        """Reduces one tensor, of which each rank gets one part."""
        timeout = self._begin(opts)
        self._reduce_scatter(output, given, self._reduction("reduce_scatter", opts), timeout)
        return done([output])

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = None
    ) -> Any:
        """Reduces several tensors, of each of which each rank gets one part."""
        timeout, reduction = self._begin(opts), self._reduction("reduce_scatter", opts)
        for output, given in zip(outputs, inputs):
            self._reduce_scatter(output, given, reduction, timeout)
        return done(outputs)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _all_to_all(
        self, into: torch.Tensor, to: Sequence[int], given: torch.Tensor, of: Sequence[int], timeout: int
    ) -> None:
        """Exchanges parts of these sizes in elements. Both tensors are contiguous."""
        scale = 1 if given.dtype in DTYPES else given.element_size()
        counts = ctypes.c_size_t * len(of)
        sent, taken = counts(*(n * scale for n in of)), counts(*(n * scale for n in to))
        issue(
            self._handle, c.ALL_TO_ALL, timeout, moved(given), moved(into), given_counts=ctypes.addressof(sent),
            output_counts=ctypes.addressof(taken),
        )

    def _parts(self, what: str, tensor: torch.Tensor, sizes: Sequence[int]) -> List[int]:
        """Returns how many elements each rank's part has: `sizes` rows of the tensor, or equal parts."""
        size = self.size()
        rows = tensor.size(0) if tensor.dim() > 0 else 1
        row = tensor.numel() // rows if rows > 0 else 1
        if len(sizes) == 0:
            if rows % size != 0:
                raise ValueError(f"all_to_all_single: the {what}'s first dimension, {rows}, is no multiple of {size}")
            return [rows // size * row] * size
        if len(sizes) != size or sum(sizes) != rows:
            raise ValueError(
                f"all_to_all_single: the {what}'s split sizes {list(sizes)} must be {size} numbers with the sum "
                f"{rows}, its first dimension"
            )
        return [n * row for n in sizes]

    def all_to_all_single(
        self,
        output: torch.Tensor,
        given: torch.Tensor,
        output_split_sizes: Sequence[int] = (),
        input_split_sizes: Sequence[int] = (),
        opts: Any = None,
    ) -> Any:
        """Sends a part of one tensor to each rank, and gets a part of each rank's."""
        timeout = self._begin(opts)
        memory = self._contiguous("all_to_all_single", output)
        source = self._contiguous("all_to_all_single", given)
        if output.dtype != given.dtype:
            raise ValueError(f"all_to_all_single: the output is {output.dtype}, but the input is {given.dtype}")
        to = self._parts("output", output, output_split_sizes)
        self._all_to_all(memory, to, source, self._parts("input", given, input_split_sizes), timeout)
        give_back(memory, output)
        return done([output])

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = None) -> Any:
        """Sends one tensor to each rank, and gets one of each. Sizes may differ."""
        timeout = self._begin(opts)
        for what, tensors in (("output", outputs), ("input", inputs)):
            if len(tensors) != self.size():
                raise ValueError(f"all_to_all: needs one {what} for each rank, but was given {len(tensors)}")
        if any(tensor.dtype != inputs[0].dtype for tensor in [*outputs, *inputs]):
            raise ValueError("all_to_all: all tensors must have one type")
        source = joined([self._contiguous("all_to_all", tensor) for tensor in inputs])
        for tensor in outputs:
            if not plain(tensor):
                self._contiguous("all_to_all", tensor)
        to = [tensor.numel() for tensor in outputs]
        flat = memory_for(sum(to), source.dtype)
        self._all_to_all(flat, to, source, [tensor.numel() for tensor in inputs], timeout)
        spread(flat, outputs)
        return done(outputs)

    def barrier(self, opts: Any = None) -> Any:
        """Waits until every rank has called it."""
        issue(self._handle, c.BARRIER, self._begin(opts))
        return done([])

    def monitored_barrier(self, opts: Any = None, wait_all_ranks: bool = False) -> None:
        """Waits until every rank has called it, and names a rank, or all of them, that did not come."""
        timeout = self._begin(None)
        given = getattr(opts, "timeout", opts)
        if isinstance(given, timedelta) and given >= timedelta(0):  # 0 is not to wait; negative is none
            timeout = milliseconds(given)
        issue(self._handle, c.MONITORED_BARRIER, timeout, wait_all_ranks=wait_all_ranks)
