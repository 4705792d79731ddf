# SPDX-License-Identifier: BSD-3-Clause
"""keep() and what it returns: marks the steps of a training loop, and in a new process goes on after the last one.

    done     where a step starts: the loop asks for its next batch. The record has the place in the data, generators,
             buffers, the settings of the optimizer's groups, scheduler and extra.
    begun    before the optimizer writes. The record has generators and buffers, which the forward pass has changed. If
             there were batches without an update before, it has all that a record of "done" has.
    updated  after it has written.
"""
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import distributed as dist
from torch.optim import Optimizer

from ddprun.recovery._batches import Batches, Position, iterate_from
from ddprun.recovery._generators import generators_of, set_generators, state_of_generators
from ddprun.recovery._equality import Equality
from ddprun.recovery._memory import KeptMemory, is_asked_for
from ddprun.recovery._optimizer import groups_of, set_groups
from ddprun.recovery._record import Record, aligned, size_of
from ddprun.recovery._state import Buffers, check_object, restore_object, state_of_object
from ddprun.recovery._tensors import KeptTensors

_FOR_GENERATORS = 65536  # bytes: more than those of PyTorch, Python, NumPy and three of a loader, twice


def keep(
    model: torch.nn.Module,
    optimizer: Optimizer,
    scheduler: Any = None,
    *,
    extra: Sequence[Any] = (),
    name: str = "training",
    record_bytes: int = 0,
) -> "Run":
    """Moves a model's parameters and its optimizer's state into memory that outlives this process, and has each step
    of the training marked. Where an earlier process of this job has left them there, they get its values, with the
    buffers, the scheduler and all of `extra`. Every rank calls it, before or after it makes DistributedDataParallel.

    extra: what else a step changes: objects with state_dict() and load_state_dict(), tensors, torch.Generators.
    name: name of the memory: letters, digits, dots, dashes, underscores.
    record_bytes: room for what is copied at each step (buffers, scheduler, extra); by default a quarter more than it
    takes now, in steps of 64 KiB.

    Tensors that no other rank has are kept, too: the state of ZeroRedundancyOptimizer, and shards of FSDP and
    fully_shard(). `ddprun --keep-memory=shadow` keeps a copy of them. Without, a rank that dies while an update is under
    way sends all to the checkpoint, and a line on stderr says so at the start. Run.kinds says what each tensor is.

    Without `ddprun --keep-memory` nothing is kept, and the loop runs as it would without keep(). Raises ValueError for
    what cannot be kept, and RuntimeError if ddprun refuses, for example since the memory does not fit into the job's
    control group.
    """
    if not is_asked_for():
        return Run(optimizer, None)
    return Run(optimizer, _Steps(model, optimizer, scheduler, list(extra), name, record_bytes))


class Run:
    """A training loop whose steps are kept.

    Attributes:
        step: number of steps that are done.
        epoch: epoch of the loop; before it begins, the one in which to go on.
        batch: index in its epoch of the batch that the loop has.
        recovered: what happened at the start of this process, as a sentence; empty if nothing was found.
        kinds: by the name of each tensor that is kept, "replicated" if it is equal on all ranks after a step, and "own"
            if no other rank has it; empty if nothing is kept.
    """

    def __init__(self, optimizer: Optimizer, steps: "Optional[_Steps]"):
        self._steps = steps
        self._updates = 0
        self.recovered = steps.recovered if steps is not None else ""
        self.kinds: "Dict[str, str]" = steps.kinds if steps is not None else {}
        self.step = steps.number if steps is not None else 0
        self._position = steps.position if steps is not None else Position()
        if steps is None:
            optimizer.register_step_post_hook(self._count)

    @property
    def epoch(self) -> int:
        return self._position.epoch

    @property
    def batch(self) -> int:
        return self._position.batches - 1

    def start_step(self) -> int:
        """Marks that a step starts here, so that all before belongs to the steps that are done. Returns their number.
        For loops that do not use batches(): call it before each step. Any loop may call it after its last step: then a
        process that dies later than that finds this place, with its random numbers, also if it skips the loop."""
        self.step = self._steps.start() if self._steps is not None else self._updates
        return self.step

    def batches(self, loader: Iterable[Any], epoch: int = 0) -> "Batches":
        """Returns the loader's batches for a `for` loop, and marks that a step starts where the next one is asked for.
        In the epoch in which this process goes on it begins with the batch of the step that was not done. Batches
        without an optimizer step (accumulation, or a step that GradScaler skips) belong to the next step that there
        is."""
        return Batches(self, loader, epoch)

    def _count(self, *_: Any) -> None:
        self._updates += 1

    def _enter(self, loader: Iterable[Any], epoch: int) -> "Iterator[Any]":
        if self._steps is not None:
            return self._steps.enter_epoch(loader, epoch)
        self._position.epoch, self._position.batches = epoch, 0
        return iter(loader)


class _Recovered(NamedTuple):
    record: Dict[str, Any]  # with which the first step starts
    sample: torch.Tensor  # some of the parameters' bytes, which differ if all were overwritten


class _Steps:
    """Marks the steps of a loop in kept memory."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: Optimizer,
        scheduler: Any,
        extra: List[Any],
        name: str,
        record_bytes: int,
    ):
        self._optimizer = optimizer
        self._buffers = Buffers(model)
        self._objects = [*([scheduler] if scheduler is not None else []), *extra]
        for one in self._objects:
            check_object(one)
        self._loaders_generators: List[torch.Generator] = []
        self.position = Position()
        self.number = 0
        self._has_update = False  # since the last step was done
        self._has_batches_without_update = False  # since then
        self._tensors = KeptTensors(model, optimizer, name)
        record = self._record_size(record_bytes)
        self.kinds = self._tensors.kinds
        self._memory = KeptMemory(
            name, self._tensors.size, record, self._tensors.number_of_layout, self._tensors.own_size,
            self._tensors.number_of_own_layout,
        )
        self._record = Record(self._memory.record)
        self.recovered = self._memory.recovered if self._memory.found else ""
        self._recovered: "Optional[_Recovered]" = None  # until the loop begins
        self._gradients: "Optional[List[Tuple[Any, Any]]]" = None  # while an update is left out
        self._has_started = False
        self._name = name
        self._equality: Optional[Equality] = None
        self._compares = not self.recovered and dist.is_initialized() and dist.get_world_size() > 1
        if self._memory.found:
            self._recover()
        else:
            self._tensors.move_into(self._memory.memory, found=False)
        optimizer.register_step_pre_hook(self._begun)
        optimizer.register_step_post_hook(self._updated)

    def _recover(self) -> None:
        record = self._record.read()
        if self._memory.is_filled:  # it would draw what the other rank draws
            record["generators"] = own = state_of_generators()
            record["position"] = (*record["position"][:2], own)
        self._tensors.move_into(self._memory.memory, found=True)
        self._restore(record)
        set_generators(record["generators"])
        self.position.epoch, self.position.batches, self.position.epochs_generators = record["position"]
        self.number = record["number"]
        self._recovered = _Recovered(record, self._tensors.sample())

    def _restore(self, record: "Dict[str, Any]") -> None:
        self._restore_objects(record)
        self._buffers.set(record["buffers"])

    def _restore_objects(self, record: "Dict[str, Any]") -> None:
        set_groups(self._optimizer, record["groups"])
        for one, state in zip(self._objects, record["objects"]):
            restore_object(one, state)

    # ---- Steps ----

    def enter_epoch(self, loader: Iterable[Any], epoch: int) -> "Iterator[Any]":
        """Returns the batches of an epoch, from the first that no done step has."""
        generators = generators_of(loader)
        self._loaders_generators = generators
        self._buffers.find()
        position = self.position
        if self._recovered is None or position.epochs_generators is None:
            position.epoch, position.batches = epoch, 0
            position.epochs_generators = state_of_generators(generators)
            return iter(loader)
        if epoch != position.epoch:
            raise RuntimeError(
                f"ddprun.keep: the loop begins with epoch {epoch}, and the training goes on in epoch {position.epoch} "
                "(for epoch in range(run.epoch, epochs))"
            )
        set_generators(position.epochs_generators, generators)
        return iterate_from(loader, position.batches)

    def start(self) -> int:
        """Marks that a step starts here. Returns how many are done."""
        if not self._has_started:
            self._begin_loop()
        else:
            self._has_batches_without_update = not self._has_update
        self._tensors.check_none_replaced(self._tensors.check_unchanged("after an update"))
        self._record.write(self._done_record(), "what a step changes")
        has_update, self._has_update = self._has_update, False
        self.number = self._memory.done()
        if self._compares and (has_update or self._equality is not None):
            self._compare()
        return self.number

    def _compare(self) -> None:
        if self._equality is None:
            self._equality = Equality(self._name, self._tensors.replicated_parameters())
        self._compares = not self._equality.is_compared()

    def _begin_loop(self) -> None:
        self._has_started = True
        recovered, self._recovered = self._recovered, None
        if recovered is None:
            self._tensors.take_back(self._tensors.check_unchanged("before the training"), has_them=False)
        else:
            if not torch.equal(self._tensors.sample(), recovered.sample):
                raise RuntimeError(
                    "ddprun.keep: the parameters were overwritten after keep() had recovered them; load a checkpoint "
                    "before keep(), or only `if not run.recovered`"
                )
            # What came between keep() and the loop has drawn random numbers, and DistributedDataParallel has given all
            # ranks the buffers of rank 0.
            set_generators(recovered.record["generators"], self._loaders_generators)
            self._buffers.set(recovered.record["buffers"])
        self._tensors.note()

    # ---- Updates ----

    def _begun(self, optimizer: Optimizer, args: "Tuple[Any, ...]", kwargs: "Dict[str, Any]") -> None:
        if len(args) > 1 or kwargs.get("closure") is not None:
            raise RuntimeError(
                "ddprun.keep: optimizer.step(closure) computes gradients within the update, which cannot be kept; "
                "compute them before step()"
            )
        replaced = self._tensors.check_unchanged("between a step and its update", is_all_checked=False)
        # Batches without an update are followed by the rest of a step, which changes more than a forward pass. A process
        # that does them again while it has newer parameters may compute something else there.
        has_all = self._has_batches_without_update
        changed = self._done_record() if has_all else self._changed_by_forward()
        self._record.write(changed, "what changes before an update")
        writes = self._memory.begun()
        self._tensors.take_back(replaced, has_them=not writes)
        if writes:
            return
        record = self._record.read()
        if not self._memory.is_filled:
            set_generators(record["generators"], self._loaders_generators)
        self._buffers.set(record["buffers"])
        if "objects" in record:
            self._restore_objects(record)
        # Optimizers leave parameters alone that have no gradient.
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self._gradients = [(parameter, parameter.grad) for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None

    def _updated(self, *_: Any) -> None:
        if self._gradients is not None:
            for parameter, gradient in self._gradients:
                parameter.grad = gradient
            self._gradients = None
            self._tensors.read_values()
        else:
            self._tensors.move_state()
            self._tensors.write_values()
        self._memory.updated()
        self._has_update = True
        self._tensors.note()

    # ---- Records ----

    def _record_size(self, asked_for: int) -> int:
        """Returns the room for a record: a rough number, since it has to be equal on all ranks and in later lives,
        whose records differ by some bytes."""
        record = {**self._done_record(), "generators": None}
        return aligned(max(asked_for, size_of(record) * 5 // 4 + _FOR_GENERATORS), _FOR_GENERATORS)

    def _changed_by_forward(self) -> "Dict[str, Any]":
        return {"generators": state_of_generators(self._loaders_generators), "buffers": self._buffers.get()}

    def _done_record(self) -> "Dict[str, Any]":
        position = self.position
        return {
            **self._changed_by_forward(),
            "number": self.number + (1 if self._has_update else 0),
            "position": (position.epoch, position.batches, position.epochs_generators),
            "groups": groups_of(self._optimizer),
            "objects": [state_of_object(one) for one in self._objects],
        }
