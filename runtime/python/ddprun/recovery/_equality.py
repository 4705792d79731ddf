# SPDX-License-Identifier: BSD-3-Clause
"""Says which parameters differ between ranks although keep() takes them for equal: those of a model that is cut into
parts by hand, whose types do not say so.

After its first update in a new job, rank 0 leaves a number for each parameter in the store of the process group. The
others compare theirs with it where one of their next steps starts. Nobody waits for that, and no rank that goes on after
a failure does it.
"""
import sys
import zlib
from typing import Dict, List

import torch
from torch import distributed as dist

from ddprun.recovery._record import packed, unpacked

_BYTES = 16384  # size of what is compared of a parameter: two parts of a model differ from the first number on
_NAMED = 3  # names in the sentence


class Equality:
    """The parameters of this rank after an update, of which others have to have the same."""

    def __init__(self, name: str, places: "Dict[str, torch.Tensor]"):
        self._numbers = {path: zlib.crc32(place[:_BYTES].numpy()) for path, place in places.items()}
        self._key = f"ddprun/kept/{name}/parameters"
        if dist.get_rank() == 0:
            dist.distributed_c10d._get_default_store().set(self._key, packed(self._numbers).numpy().tobytes())

    def is_compared(self) -> bool:
        """Returns whether nothing is left to compare. Says on stderr what differs."""
        if dist.get_rank() == 0:
            return True
        store = dist.distributed_c10d._get_default_store()
        if not store.check([self._key]):
            return False
        others = unpacked(torch.frombuffer(bytearray(store.get(self._key)), dtype=torch.uint8))
        different = [path for path, number in self._numbers.items() if others.get(path) != number]
        if different:
            print(_sentence(different, len(self._numbers)), file=sys.stderr, flush=True)
        return True


def _sentence(different: List[str], count: int) -> str:
    named = ", ".join(different[:_NAMED]) + (", ..." if len(different) > _NAMED else "")
    return (
        f"ddprun.keep: {len(different)} of {count} parameters of rank {dist.get_rank()} differ from those of rank 0 after "
        f"a step: {named}. After a failure a rank may get another's: keep() is for ranks whose parameters are equal, and "
        "for shards whose types say so (DTensor, FSDP)"
    )
