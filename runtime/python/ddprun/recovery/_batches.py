# SPDX-License-Identifier: BSD-3-Clause
"""A loader's batches from the middle of an epoch on, with the random numbers that an undisturbed run has there."""
import copy
import itertools
from typing import Any, Iterable, Iterator, List, NamedTuple, Optional

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

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
        self._begin()
        return self

    def __next__(self) -> Any:
        self.skip()
        return self._held.pop() if self._held else next(self._begin())

    def _begin(self) -> "Iterator[Any]":
        if self._items is None:
            self._items = iter(self._sampler)
        return self._items

    def __len__(self) -> int:
        return max(0, len(self._sampler) - self._count)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)

    def skip(self) -> None:
        """Draws the first items, if they were not yet."""
        items = self._begin()
        for _ in range(self._count):
            next(items, None)
        self._count = 0

    def draw(self) -> None:
        """Draws the first item that is wanted, too."""
        self.skip()
        self._held = list(itertools.islice(self._begin(), 1))


class Division(NamedTuple):
    """How a loader divides the data of an epoch."""

    ranks: int  # that have a part each; 1 if this loader has all, as far as is known
    examples: int  # in a batch; 1 if that is not known, so that a batch counts as one example


def division_of(loader: Any) -> Division:
    """Returns what a loader's samplers say of that: DistributedSampler has `num_replicas`."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    samplers = (getattr(loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None))
    replicas = [getattr(sampler, "num_replicas", None) for sampler in samplers]
    sizes = [getattr(owner, "batch_size", None) for owner in (loader, batch_sampler)]
    return Division(next(filter(_counts, replicas), 1), next(filter(_counts, sizes), 1))


def _counts(number: Any) -> bool:
    return isinstance(number, int) and number > 0


def iterate_from_example(loader: Any, example: int, least: int = 0, draws_now: bool = False) -> "Iterator[Any]":
    """Returns an iterator over a loader's batches from one that begins with the example of that index, or a little
    before it: with a whole batch, if the loader does not let it begin elsewhere, and so that `least` whole batches are
    left, if the loader has them."""
    size = division_of(loader).examples
    sampler = _sampler_of_examples(loader)
    if least > 0 and example > 0:
        examples = len(sampler) if sampler is not None else _length_of(loader) * size
        example = max(0, min(example, examples - least * size)) if examples > 0 else example
    if sampler is None or example % size == 0:
        return iterate_from(loader, example // size, draws_now)
    late = _LateSampler(sampler, example)
    return _iterate_late(loader, "batch_sampler", late, BatchSampler(late, size, loader.drop_last), draws_now)


def _sampler_of_examples(loader: Any) -> Any:
    """Returns the sampler whose examples PyTorch makes batches of; None: the loader makes them otherwise."""
    has_sampler = isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)
    if not has_sampler or type(loader.batch_sampler) is not BatchSampler or not hasattr(loader.sampler, "__len__"):
        return None
    return loader.sampler


def _length_of(loader: Any) -> int:
    try:
        return len(loader)
    except TypeError:
        return 0


def iterate_from(loader: Any, start: int, draws_now: bool = False) -> "Iterator[Any]":
    """Returns an iterator over a loader's batches without the first `start`. Draws from generators what the loader would
    have drawn before the batch `start`, but for what making the first batches draws; with draws_now also what the
    sampler draws for that batch, which it would draw when that is asked for."""
    if start == 0 and not draws_now:
        return iter(loader)
    if isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset):
        name = "batch_sampler" if loader.batch_sampler is not None else "sampler"
        late = _LateSampler(getattr(loader, name), start)
        return _iterate_late(loader, name, late, late, draws_now)
    items = iter(loader)
    for _ in range(start):
        next(items, None)
    return items


def _iterate_late(loader: Any, name: str, late: _LateSampler, sampler: Any, draws_now: bool) -> "Iterator[Any]":
    rest = copy.copy(loader)
    # DataLoader refuses to have its sampler replaced, since its users would not see that. This copy has no users.
    object.__setattr__(rest, name, sampler)
    items: "Iterator[Any]" = iter(rest)
    if draws_now and loader.num_workers == 0:  # else the loader has asked for items already
        late.draw()
    late.skip()
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
        self.examples = 0  # examples of the epoch that all ranks have taken together; attempts count them
        self.epochs_generators: Optional[State] = None  # as the epoch began
