# SPDX-License-Identifier: BSD-3-Clause
"""attempts(): a training whose processes stay when others fail (`ddprun --on-failure replace` or `shrink`).

An attempt is what a process does in one round of its job: it forms the process group, is given the state of the rank
that has come farthest, and trains until the end or until a rank is lost. Then it leaves the group and waits for the next
round, in which other processes have the places of those that died, or in which there are fewer or more ranks. All that
is made of a group ends with its attempt.

What is done again after a loss is the step under way. Its start is in memory (_training.py).
"""
import os
import re
import time
from datetime import timedelta
from typing import Any, Iterable, Iterator, Optional, Sequence

import torch
from torch import distributed as dist
from torch.optim import Optimizer

from ddprun.recovery import _survival
from ddprun.recovery._batches import Batches
from ddprun.recovery._connections import Connections
from ddprun.recovery._training import Training
from ddprun.recovery._wrappers import Wrappers

_BACKENDS = ("ddp", "gloo")
_ENDED_WITHIN = 10.0  # seconds for ddprun to end a round in which an operation has failed, whatever the error says
# Words of errors of operations whose cause may be a node that is silent. ddprun ends the round only once it counts the
# node as lost.
_MAY_BE_SILENT = re.compile(r"another rank|peer|connect|reset|broken pipe|clos|socket|tim(ed|e) ?out", re.IGNORECASE)
_CONNECTED_WITHIN = timedelta(seconds=20)  # for Gloo to connect ranks that are all there
_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.05  # seconds between looks of a rank that waits for all others
_DEFAULT_TIMEOUT = timedelta(minutes=30)


def attempts(
    model: torch.nn.Module,
    optimizer: Optimizer,
    scheduler: Any = None,
    *,
    extra: Sequence[Any] = (),
    backend: str = "ddp",
    timeout: Optional[timedelta] = None,
    seed: Optional[int] = None,
) -> "Attempts":
    """Returns the attempts of a training, for a loop whose body trains:

        for attempt in ddprun.attempts(model, optimizer, scheduler, backend="gloo"):
            with attempt:
                parallel = DistributedDataParallel(model, init_sync=False)
                for epoch in range(attempt.epoch, epochs):
                    for x, y in attempt.batches(loader, epoch):
                        ...                     # zero_grad, backward, optimizer.step(), scheduler.step()

    Under `ddprun --on-failure replace` the loop goes on with another attempt when a rank is lost, and under `shrink` when
    a node is lost or comes; otherwise it has one.
    `with` makes torch.distributed's default group, and gives all ranks the state of one: in the first attempt the state
    of rank 0, later the state of a process that has stayed. It ends the group, too. What is made of the group, such as
    DistributedDataParallel, is made within it.

    Where the number of ranks changes, an epoch goes on with the examples that no rank has trained on, divided among the
    ranks that there are. For that the loader's sampler is a DistributedSampler, made within the attempt.

    model: the module itself, on the CPU, not within DistributedDataParallel.
    extra: what else a step changes and all ranks have equal: objects with state_dict() and load_state_dict(), tensors.
    backend: "ddp" or "gloo".
    timeout: of the group's operations; 30 minutes by default.
    seed: each step begins with generators that are seeded with this number, the step's and the rank's, so that a new
    process draws what the one before it would have drawn.

    Raises ValueError for what cannot be trained so.
    """
    return Attempts(Training(model, optimizer, scheduler, list(extra), seed), backend, timeout or _DEFAULT_TIMEOUT)


class Attempts:
    """The attempts of a training: an iterator."""

    def __init__(self, training: Training, backend: str, timeout: timedelta):
        if backend not in _BACKENDS:
            raise ValueError(
                f'ddprun.attempts: the backend is "{backend}", and only the groups of "ddp" and "gloo" can be left when '
                "a rank is lost"
            )
        self._training = training
        self._backend = backend
        self._timeout = timeout

    def __iter__(self) -> "Iterator[Attempt]":
        if dist.is_initialized():
            raise RuntimeError(
                "ddprun.attempts: there is a process group already; an attempt makes its own, so leave "
                "init_process_group() out, and make what needs a group within the attempt"
            )
        stays = _survival.stay(True)
        self._training.survives = stays
        number, why = 0, ""
        while True:
            group = _StayingGroup(self._backend, self._timeout) if stays else _Group(self._backend, self._timeout)
            attempt = Attempt(self._training, group, number)
            attempt.begin(why)
            if not attempt.loss:
                yield attempt
                if not attempt.has_ended:
                    raise RuntimeError("ddprun.attempts: an attempt was not entered (write `with attempt:`)")
            if not attempt.loss:
                return
            number, why = number + 1, attempt.loss
            group.leave()
            _survival.await_next_round(why)


class Attempt:
    """What this process does in one round of its job.

    Attributes:
        number: attempts of this process before this one.
        step: number of steps that are done.
        epoch: epoch of the loop; before it begins, the one in which to go on.
        batch: index in its epoch of the batch that the loop has, as batches are with this number of ranks.
        recovered: what happened at the start of this attempt, as a sentence; empty in a job that has just begun.
    """

    def __init__(self, training: Training, group: "_Group", number: int):
        self._training = training
        self._group = group
        self._position = training.position
        self.number = number
        self.loss = ""  # why the attempt has ended before the training
        self.has_ended = False

    def begin(self, why: str) -> None:
        """Forms the group and gives all ranks one state. `why` the attempt before has ended. Sets `loss` if a rank is
        lost meanwhile."""
        try:
            self._group.form()
            self._training.begin(why)
        except RuntimeError as error:
            if not self._group.is_lost(error):
                raise
            self.loss = _line_of(error)

    @property
    def step(self) -> int:
        return self._training.done

    @property
    def epoch(self) -> int:
        return self._training.position.epoch

    @property
    def batch(self) -> int:
        return self._training.position.batches - 1

    @property
    def recovered(self) -> str:
        return self._training.recovered

    def batches(self, loader: Iterable[Any], epoch: int = 0) -> Batches:
        """Returns the loader's batches for a `for` loop, and marks that a step starts where the next one is asked for.
        In the epoch in which this attempt goes on it begins with the batch of the step that was not done. Batches
        without an optimizer step (accumulation, or a step that GradScaler skips) belong to the next step that there
        is."""
        return Batches(self, loader, epoch)

    def start_step(self) -> int:
        """Marks that a step starts here, so that all before belongs to the steps that are done. Returns their number.
        For loops that do not use batches(): call it before each step."""
        done = self._training.start()
        self._group.require_round()
        return done

    def _enter(self, loader: Iterable[Any], epoch: int) -> "Iterator[Any]":
        return self._training.enter_epoch(loader, epoch)

    def __enter__(self) -> "Attempt":
        return self

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> bool:
        self.has_ended = True
        try:
            if error is None:
                self._training.end()
                self._group.end()
                self._training.close()
                return False
        except RuntimeError as late:
            if not self._group.is_lost(late):
                raise
            error = late
        else:
            if not isinstance(error, RuntimeError) or not self._group.is_lost(error):
                return False
        self._training.note_loss()
        self.loss = _line_of(error)
        return True


class _Group:
    """torch.distributed's default group of one attempt, where this process ends if a rank is lost."""

    def __init__(self, backend: str, timeout: timedelta):
        self._backend = backend
        self._timeout = timeout
        self._wrappers = Wrappers()
        if backend == "ddp":
            import ddprun.torch  # noqa: F401  # before PyTorch 2.14 it makes the backend known

    def form(self) -> None:
        """Returns once all ranks are connected."""
        dist.init_process_group(self._backend, timeout=self._timeout)

    def is_lost(self, error: BaseException) -> bool:
        """Returns whether the error comes from the loss of a rank, after which this process goes on."""
        return False

    def require_round(self, seconds: float = 0.0) -> None:
        """Raises if the round is over; waits for that, at most for so long."""

    def end(self) -> None:
        """Ends the group of a training that is over."""
        self.leave()

    def leave(self) -> None:
        """Ends the group."""
        # A reducer that is the last to have the group ends it while it holds Python's lock. In PyTorch 2.4 Gloo's threads,
        # which it waits for, may need the lock to free a tensor: then both wait forever.
        self._wrappers.release()
        if dist.is_initialized():
            dist.destroy_process_group()


class _StayingGroup(_Group):
    """The same under `ddprun --on-failure replace` or `shrink`."""

    def __init__(self, backend: str, timeout: timedelta):
        super().__init__(backend, timeout)
        self._is_libddps = backend == "ddp" or _serves_gloo()
        self._store: Any = None
        self._connections = Connections()
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
            raise RuntimeError(
                "ddprun.attempts: under --on-failure replace or shrink the ranks meet in ddprun's store, and rank 0 is to host one "
                "here (TORCH_DISABLE_SHARE_RDZV_TCP_STORE)"
            )

    def form(self) -> None:
        size, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
        self._connections.forming()
        self._store = dist.TCPStore(
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            is_master=False,
            wait_for_workers=False,
            timeout=self._timeout,
        )
        store = dist.PrefixStore("ddprun/attempt", self._store)
        # libddp ends the waits of its own groups; it is only in the store that a rank may wait with nobody to free it.
        if self._is_libddps:
            self._connections.formed()
        self.require_round()  # it may have been over before ddprun knew of the connections
        # Gloo waits for the connection of a rank that has died meanwhile, in which no socket can be shut. So all ranks
        # have to be there first, and then it has little time.
        self._meet("begins", size)
        limit = self._timeout if self._is_libddps or _SET_TIMEOUT is None else min(self._timeout, _CONNECTED_WITHIN)
        dist.init_process_group(self._backend, store=store, rank=rank, world_size=size, timeout=limit)
        if not self._is_libddps:
            if limit != self._timeout:
                _SET_TIMEOUT(self._timeout)
            self._connections.formed()
            self._connections.watch_new_groups()
        self.require_round()

    def is_lost(self, error: BaseException) -> bool:
        is_of_group = isinstance(error, _GROUP_ERRORS) or "gloo" in str(error).lower()
        if is_of_group and _MAY_BE_SILENT.search(str(error)):
            return _survival.is_round_over(None)
        return _survival.is_round_over(_ENDED_WITHIN if is_of_group else 0.0)

    def end(self) -> None:
        # A rank that is done waits: others may still need its state.
        self._meet("ends", dist.get_world_size())
        _survival.stay(False)
        self.leave()

    def leave(self) -> None:
        self._connections.close()
        super().leave()
        self._store = None
        world: Any = getattr(dist.distributed_c10d, "_world", None)
        if world is not None:
            world.group_count = 0  # a group that was not formed has counted; new processes count from 0

    def _meet(self, what: str, size: int) -> None:
        """Returns once all ranks are here. It is the store that tells, which outlives each of them."""
        until = time.monotonic() + self._timeout.total_seconds()
        if self._store.add(f"ddprun/attempt_{what}", 1) == size:
            self._store.set(f"ddprun/all_{what}", b"1")
        # Not store.wait(): PyTorch writes pages to stderr when the wait ends with an error.
        pause = _FIRST_PAUSE
        while not self._store.check([f"ddprun/all_{what}"]):
            self.require_round(pause)
            pause = min(_LONGEST_PAUSE, pause * 1.05)
            if time.monotonic() >= until:
                raise TimeoutError(f"ddprun.attempts: not all {size} ranks have come within {self._timeout}")

    def require_round(self, seconds: float = 0.0) -> None:
        if _survival.is_round_over(seconds):
            raise RuntimeError("ddprun has ended the round")


# Gives the default group another timeout: public in PyTorch 2.15.
_SET_TIMEOUT: Any = getattr(dist, "set_timeout", None) or getattr(dist.distributed_c10d, "_set_pg_timeout", None)
_GROUP_ERRORS = tuple(
    getattr(dist, name) for name in ("DistError", "DistBackendError", "DistNetworkError", "DistStoreError")
    if hasattr(dist, name)
)


def _serves_gloo() -> bool:
    """Returns whether libddp serves the name "gloo" (ddprun --gloo=ddp)."""
    plugin = dist.Backend._plugins.get("GLOO")
    return plugin is not None and getattr(plugin.creator_fn, "__module__", "").startswith("ddprun.")


def _line_of(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
