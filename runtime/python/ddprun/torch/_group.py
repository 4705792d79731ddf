# SPDX-License-Identifier: BSD-3-Clause
"""What all operations of a process group share: its life, its options, and what it asks of tensors and reductions."""
from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, List, NoReturn, Optional, Tuple

import torch
from torch._C import _distributed_c10d as c10d
from torch.distributed import DistBackendError, ReduceOp

from ddprun.torch import _libddp as c
from ddprun.torch._libddp import DTYPES, SUM_OF_ALL, Reduction
from ddprun.torch._session import Group, milliseconds
from ddprun.torch._tensors import plain

UNSET = timedelta(0)  # what no timeout is, or less
_OPS = {
    ReduceOp.SUM: c.SUM,
    ReduceOp.AVG: c.AVG,
    ReduceOp.PRODUCT: c.PRODUCT,
    ReduceOp.MIN: c.MIN,
    ReduceOp.MAX: c.MAX,
    ReduceOp.BAND: c.BAND,
    ReduceOp.BOR: c.BOR,
    ReduceOp.BXOR: c.BXOR,
    ReduceOp.PREMUL_SUM: c.PREMUL_SUM,
}
# On bool, whose bytes are 0 or 1.
_OPS_OF_BOOL = {c.SUM: c.MAX, c.MAX: c.MAX, c.BOR: c.MAX, c.PRODUCT: c.MIN, c.MIN: c.MIN, c.BAND: c.MIN, c.BXOR: c.BXOR}
_LINEAR = (c.SUM, c.AVG, c.PREMUL_SUM)  # what may be done to the parts of complex numbers
_NOTHING = torch.empty(0, device="cpu")  # the result of what has none; is_completed() goes by a tensor (_messages.py)


def done(result: Any) -> Any:
    """Returns the work of an operation that has ended: one of PyTorch's own kind, since that works in all versions."""
    future: "torch.futures.Future[Any]" = torch.futures.Future()
    future.set_result(result or _NOTHING)
    return c10d._create_work_from_future(future)


class GroupMember:
    """This process's membership in a process group."""

    if TYPE_CHECKING:  # PyTorch's classes have them

        def rank(self) -> int: ...
        def size(self) -> int: ...

    # ---- A group's life ----

    def _open(self, group: Group, timeout: timedelta) -> None:
        self._group: Optional[Group] = group
        self._handle: Optional[int] = group.handle
        self._timeout = milliseconds(timeout)
        self._sequence = 0
        self._coalesced: Optional[List[Any]] = None  # messages since start_coalescing()

    def _close(self) -> None:
        group, self._group, self._handle = self._group, None, None
        if group is not None:
            group.close()

    def _require_open(self) -> None:
        if self._handle is None:
            raise DistBackendError("the process group has been destroyed")

    def getBackendName(self) -> str:
        """Returns "ddp"."""
        return "ddp"

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the timeout of later operations."""
        self._timeout = milliseconds(timeout)

    _set_default_timeout = set_timeout

    @property
    def supports_splitting(self) -> bool:
        """False: new groups are made by their members."""
        return False

    @property
    def supports_coalescing(self) -> bool:
        """False: messages start at once, in any order, so that batch_isend_irecv() needs no window."""
        return False

    # TORCH_DISTRIBUTED_DEBUG=DETAIL calls these two.
    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    # ---- What a call is given ----

    def _begin(self, opts: Any) -> int:
        """Counts the operation and returns its timeout."""
        if self._handle is None:
            self._require_open()
        self._sequence += 1
        timeout = getattr(opts, "timeout", None)
        return self._timeout if timeout is None or timeout <= UNSET else milliseconds(timeout)

    def _refuse(self, what: str, tensor: torch.Tensor) -> NoReturn:
        """Explains why the backend does not take a tensor that is not in the CPU's memory, or is sparse."""
        device = tensor.device.type
        if device == "cpu":
            raise ValueError(
                f"{what}: the backend 'ddp' takes dense tensors only, but one has the layout {tensor.layout}: "
                "give it tensor.to_dense(), or use the backend \"gloo\""
            )
        if device == "cuda":
            advice = 'start with init_process_group("cpu:ddp,cuda:nccl"), which PyTorch 2.14 and newer can, or "nccl"'
        else:
            advice = f'start with init_process_group("cpu:ddp,{device}:BACKEND") and a backend that takes them'
        raise ValueError(
            f"{what}: the backend 'ddp' takes tensors in the memory of the CPU only, but one is on "
            f"{tensor.device}: {advice}"
        )

    def _contiguous(self, what: str, tensor: torch.Tensor) -> torch.Tensor:
        if plain(tensor):
            return tensor
        if not tensor.is_cpu or tensor.layout is not torch.strided:
            self._refuse(what, tensor)
        return tensor.resolve_conj().resolve_neg().contiguous()

    def _reduction(self, what: str, opts: Any) -> Reduction:
        if opts is None:
            return SUM_OF_ALL
        given = getattr(opts, "reduceOp", opts)
        if not isinstance(given, (ReduceOp, ReduceOp.RedOpType)):
            return SUM_OF_ALL
        op = _OPS[getattr(given, "op", given)]
        if op == c.SUM:
            return SUM_OF_ALL
        factor = given.__getstate__()[1] if op == c.PREMUL_SUM else 0.0
        return Reduction(op, float(factor))

    def _reducible(self, what: str, tensor: torch.Tensor, reduction: Reduction) -> Tuple[torch.Tensor, int, Reduction]:
        """Returns a tensor whose memory can be reduced, its type and the reduction that does so."""
        dtype = DTYPES.get(tensor.dtype)
        if dtype is not None:
            return tensor, dtype, reduction
        if tensor.dtype is torch.bool and reduction.op in _OPS_OF_BOOL:
            return tensor, c.UINT8, Reduction(_OPS_OF_BOOL[reduction.op], 0.0)
        if tensor.is_complex() and reduction.op in _LINEAR:
            parts = torch.view_as_real(tensor)
            if parts.dtype in DTYPES:
                return parts, DTYPES[parts.dtype], reduction
        raise ValueError(f"{what}: the backend 'ddp' cannot do this reduction of {tensor.dtype}")
