# SPDX-License-Identifier: BSD-3-Clause
"""Serves the name "gloo" with the backend "ddp", and leaves what that does not do to PyTorch's Gloo. PyTorch 2.14 and
newer.
"""
from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import Any, Optional

import torch
from torch import distributed as dist
from torch._C import _distributed_c10d as c10d

from ddprun.torch._backend import HAS_PYTHON_BACKENDS, DdpBackend, make, register
from ddprun.torch._profile import tensors_of


class GlooBackend(DdpBackend):
    """DdpBackend, with PyTorch's Gloo beside it for sparse tensors and for tensors that are not on the CPU.

    Gloo is connected at the first call that needs it, which all ranks make. With CUDA that may be a message between
    two ranks, so it is connected at once where CUDA is there.
    """

    events = "gloo"  # by which name tools look for them

    _store: Any
    _gloo: Optional[Any] = None
    _limit: timedelta

    def beside(self, store: Any, timeout: timedelta) -> None:
        """Says at which store Gloo's ranks meet."""
        self._store, self._limit = dist.PrefixStore("gloo/", store), timeout
        if torch.cuda.is_available():
            self._real()

    def _real(self) -> Any:
        if self._gloo is None:
            self._gloo = c10d.ProcessGroupGloo(self._store, self.rank(), self.size(), timeout=self._limit)
        return self._gloo

    def shutdown(self) -> None:
        """Leaves both groups."""
        self._gloo = None
        DdpBackend.shutdown(self)

    abort = shutdown


def _choose(name: str) -> Any:
    """Returns the method that calls ours or Gloo's, as the tensors that it is given demand."""
    ours = getattr(DdpBackend, name)

    def method(self: GlooBackend, *arguments: Any) -> Any:
        if all(tensor.is_cpu and tensor.layout is torch.strided for tensor in tensors_of(arguments)):
            return ours(self, *arguments)
        return getattr(self._real(), name)(*arguments)

    method.__name__, method.__doc__ = name, ours.__doc__
    return method


for _name in (
    "allreduce allreduce_coalesced allreduce_sparse reduce broadcast allgather allgather_coalesced all_gather_single "
    "all_gather_single_coalesced gather scatter reduce_scatter reduce_scatter_single reduce_scatter_single_coalesced "
    "all_to_all_single alltoall send recv recv_anysource"
).split():
    setattr(GlooBackend, _name, _choose(_name))


_has_said = False


def _say(group_rank: int) -> None:
    """Says once for a job, on rank 0's stderr, that "gloo" is served, when the first group is made."""
    global _has_said
    rank = dist.get_rank() if dist.is_initialized() else group_rank
    if _has_said or rank != 0 or os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        return
    _has_said = True
    print('ddprun: the backend "gloo" of torch.distributed is served by "ddp"', file=sys.stderr)


def make_gloo(options: Any, backend_options: Optional[Any]) -> Any:
    """Makes what PyTorch asks for under the name "gloo"."""
    made = make(options, backend_options, GlooBackend)
    made.beside(options.store, options.timeout)
    _say(options.group_rank)
    return made


def register_gloo() -> None:
    """Takes the name "gloo". Does nothing in a PyTorch that is too old, but to say so on rank 0's stderr."""
    if HAS_PYTHON_BACKENDS:
        register()
        dist.Backend.register_backend("gloo", make_gloo, extended_api=True, devices=["cpu", "cuda"])
    elif os.environ.get("RANK", "0") == "0":
        print(f"ddprun: gloo stays PyTorch's own: PyTorch {torch.__version__} is older than 2.14", file=sys.stderr)
