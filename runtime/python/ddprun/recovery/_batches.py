# SPDX-License-Identifier: BSD-3-Clause
"""A loader's batches from the middle of an epoch on, with the random numbers that an undisturbed run has there."""
import copy
from typing import Any, Iterator, Optional

from torch.utils.data import DataLoader, IterableDataset


class _LateSampler:
    """A sampler without its first items. They are drawn when the first item is asked for, or by skip(): samplers draw
    from a generator there, after the loader itself has."""

    def __init__(self, sampler: Any, count: int):
        self._sampler = sampler
        self._count = count
        self._items: Optional[Iterator[Any]] = None

    def __iter__(self) -> "Iterator[Any]":
        self._items = iter(self._sampler)
        return self

    def __next__(self) -> Any:
        self.skip()
        return next(self._items)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return max(0, len(self._sampler) - self._count)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)

    def skip(self) -> None:
        """Draws the first items, if they were not yet."""
        for _ in range(self._count):
            next(self._items, None)  # type: ignore[arg-type]
        self._count = 0


def iterate_from(loader: Any, start: int) -> "Iterator[Any]":
    """Returns an iterator over a loader's items without the first `start`. Draws from generators what the loader would
    have drawn before the item `start`, but for what making the first items draws."""
    if start == 0:
        return iter(loader)
    if isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset):
        rest = copy.copy(loader)
        name = "batch_sampler" if loader.batch_sampler is not None else "sampler"
        late = _LateSampler(getattr(loader, name), start)
        # DataLoader refuses to have its sampler replaced, since its users would not see that. This copy has no users.
        object.__setattr__(rest, name, late)
        items: "Iterator[Any]" = iter(rest)
        late.skip()
        return items
    items = iter(loader)
    for _ in range(start):
        next(items, None)
    return items
