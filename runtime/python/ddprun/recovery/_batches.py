# SPDX-License-Identifier: BSD-3-Clause
"""A loader's batches from the middle of an epoch on, with the random numbers that an undisturbed run has there."""
import copy
import itertools
from typing import Any, Iterable, Iterator, List, Optional

from torch.utils.data import DataLoader, IterableDataset

from ddprun.recovery._generators import State


class _LateSampler:
    """A sampler without its first items. They are drawn when the first item is asked for, or by skip(): samplers draw
    from a generator there, after the loader itself has."""

    def __init__(self, sampler: Any, count: int):
        self._sampler = sampler
        self._count = count
        self._items: Optional[Iterator[Any]] = None
        self._held: List[Any] = []  # the item that comes next, if it is drawn already

    def __iter__(self) -> "Iterator[Any]":
        self._items = iter(self._sampler)
        return self

    def __next__(self) -> Any:
        self.skip()
        return self._held.pop() if self._held else next(self._items)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return max(0, len(self._sampler) - self._count)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)

    def skip(self) -> None:
        """Draws the first items, if they were not yet."""
        for _ in range(self._count):
            next(self._items, None)  # type: ignore[arg-type]
        self._count = 0

    def draw(self) -> None:
        """Draws the first item that is wanted, too."""
        self.skip()
        self._held = list(itertools.islice(self._items, 1))  # type: ignore[arg-type]


def iterate_from(loader: Any, start: int, draws_now: bool = False) -> "Iterator[Any]":
    """Returns an iterator over a loader's items without the first `start`. Draws from generators what the loader would
    have drawn before the item `start`, but for what making the first items draws; with draws_now also what the sampler
    draws for that item, which it would draw when that is asked for."""
    if start == 0 and not draws_now:
        return iter(loader)
    if isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset):
        rest = copy.copy(loader)
        name = "batch_sampler" if loader.batch_sampler is not None else "sampler"
        late = _LateSampler(getattr(loader, name), start)
        # DataLoader refuses to have its sampler replaced, since its users would not see that. This copy has no users.
        object.__setattr__(rest, name, late)
        items: "Iterator[Any]" = iter(rest)
        if draws_now and loader.num_workers == 0:  # else the loader has asked for items already
            late.draw()
        late.skip()
        return items
    items = iter(loader)
    for _ in range(start):
        next(items, None)
    return items


class Batches:
    """Batches of one epoch. Each `for` loop over it goes through the epoch. `run` marks where steps start."""

    def __init__(self, run: Any, loader: Iterable[Any], epoch: int):
        self._run, self._loader, self._epoch = run, loader, epoch

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> "Iterator[Any]":
        items = self._run._enter(self._loader, self._epoch)
        while True:
            self._run.start_step()
            try:
                batch = next(items)
            except StopIteration:
                return
            self._run._position.batches += 1
            yield batch


class Position:
    """Where a loop is in its data."""

    def __init__(self) -> None:
        self.epoch = 0
        self.batches = 0  # batches of the epoch that the loop has taken
        self.epochs_generators: Optional[State] = None  # as the epoch began
