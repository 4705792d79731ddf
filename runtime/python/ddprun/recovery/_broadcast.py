# SPDX-License-Identifier: BSD-3-Clause
"""Has DistributedDataParallel leave a successor's kept parameters as they are.

Its constructor gives every rank the parameters of rank 0. A process that takes the place of a dead one has newer ones,
and gets them back where the loop begins. So what the log has of that broadcast is read, as the process before has, and
is not written to them: with 11 million parameters that takes most of the constructor's time.
"""
from typing import Any, List

import torch
import torch.distributed as dist


class LeftOut:
    """Leaves kept tensors out of the broadcasts that modules are synchronised with, until end()."""

    def __init__(self, memory: torch.Tensor):
        self._begin = memory.data_ptr()
        self._end = self._begin + memory.numel()
        self._broadcast = dist._broadcast_coalesced
        dist._broadcast_coalesced = self._read

    def end(self) -> None:
        """Has broadcasts be what they were."""
        if dist._broadcast_coalesced == self._read:
            dist._broadcast_coalesced = self._broadcast

    @torch.no_grad()
    def _read(self, group: Any, tensors: List[torch.Tensor], size: int, source: int = 0) -> None:
        if not any(map(self._is_kept, tensors)):
            return self._broadcast(group, tensors, size, source)
        # These are the calls that PyTorch makes (c10d/comm.cpp, broadcast_coalesced), so that the log has them.
        for bucket in dist._compute_bucket_assignment_by_size(tensors, [size])[0]:
            ours = [tensors[number] for number in bucket]
            flat = torch.empty(sum(tensor.numel() for tensor in ours), dtype=ours[0].dtype)
            options = dist.BroadcastOptions()
            options.rootRank = source
            group.broadcast([flat], options).wait()
            for tensor, part in zip(ours, flat.split([tensor.numel() for tensor in ours])):
                if not self._is_kept(tensor) and group.rank() != source:
                    tensor.copy_(part.view(tensor.shape))

    def _is_kept(self, tensor: torch.Tensor) -> bool:
        return self._begin <= tensor.data_ptr() < self._end
