# SPDX-License-Identifier: BSD-3-Clause
"""The DistributedDataParallels that a program makes in an attempt, which end with it."""
import functools
import weakref
from typing import Any, List

from torch.nn.parallel import DistributedDataParallel


class Wrappers:
    """Those that are made from its making until release()."""

    def __init__(self) -> None:
        self._made: "List[weakref.ref[DistributedDataParallel]]" = []
        self._init: Any = DistributedDataParallel.__init__
        made, init = self._made, self._init

        @functools.wraps(init)
        def note_and_init(wrapper: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
            made.append(weakref.ref(wrapper))
            init(wrapper, *args, **kwargs)

        DistributedDataParallel.__init__ = note_and_init  # type: ignore[method-assign]

    def release(self) -> None:
        """Takes their hooks off the parameters. The program may still have such a wrapper, and its reducer would send
        the gradients of the next attempt to a group that has ended. It cannot be used any more."""
        DistributedDataParallel.__init__ = self._init  # type: ignore[method-assign]
        for reference in self._made:
            wrapper = reference()
            if wrapper is not None:
                wrapper.__dict__.pop("reducer", None)
                wrapper.__dict__.pop("logger", None)
        self._made.clear()
