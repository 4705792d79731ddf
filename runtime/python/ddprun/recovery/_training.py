# SPDX-License-Identifier: BSD-3-Clause
"""What of a training outlives an attempt: its steps, and what is needed to do one again.

    start      where a step starts: the loop asks for its next batch. The record has the place in the data, generators,
               buffers, the settings of the optimizer's groups, scheduler and extra.
    update     from before the optimizer writes until it has written. What the forward pass has changed is noted before.

A rank that has lost another one goes back to its record, with one exception: if the update of the step is in its
tensors, it does the step again, and the optimizer writes nothing, since what follows the update was not done. Ranks that
are behind take the tensors of one that is not (_transfer.py).

The next attempt may have another number of ranks (`ddprun --on-failure shrink`). So the place in the data is the number
of examples of the epoch that all ranks have taken together: each rank goes on with its part of the rest. An update that
is in the tensors was computed from the examples of the ranks that there were, and the next step begins after these.
"""
import copy
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

import torch
from torch import distributed as dist
from torch.optim import Optimizer

from ddprun.recovery._batches import Division, Position, division_of, iterate_from_example
from ddprun.recovery._generators import generators_of, seed_generators, set_generators, state_of_generators
from ddprun.recovery._optimizer import groups_of, parameters_of, set_groups
from ddprun.recovery._record import is_plain
from ddprun.recovery._state import Buffers, check_object, restore_object, state_of_object
from ddprun.recovery._transfer import (
    Place,
    broadcast_object,
    choose_source,
    gather_places,
    give_tensors,
    layout_of,
    state_tensors,
    take_layout,
)

_NAME = "ddprun.attempts"
_Record = Dict[str, Any]


class Training:
    """A model, its optimizer and what else a step changes."""

    survives = False  # whether this process stays when others fail

    def __init__(
        self, model: torch.nn.Module, optimizer: Optimizer, scheduler: Any, extra: List[Any], seed: Optional[int]
    ):
        self.model = model
        self._optimizer = optimizer
        self._parameters = parameters_of(model, optimizer)
        _check(self._parameters, optimizer)
        self._buffers = Buffers(model)
        self._objects = [*([scheduler] if scheduler is not None else []), *extra]
        for one in self._objects:
            check_object(one, _NAME)
        self._seed = seed
        self.position = Position()
        self.done = 0
        self.recovered = ""
        self._has_stayed = False
        self._is_whole = True
        self._is_updating = False
        self._has_update = False  # since the last step was done
        self._record: Optional[_Record] = None  # the step under way begins with it
        self._forward: Optional[_Record] = None  # what its forward pass has changed, as the update began
        self._at_loss: Optional[_Record] = None  # what it had changed when a rank was lost
        self._start: Optional[_Record] = None  # what the first step of an attempt starts with
        self._goes_on = False  # the next epoch is one that was begun before
        self._has_started = False  # the loop of this attempt
        self._skips_update = False  # the tensors have the next update already
        self._taken = (0, 0, 0)  # examples of the epoch up to that update, batches of its step, and ranks
        self._division = Division(1, 1)  # how the loader divides the data
        self._goes_to: Optional[int] = None  # number of examples, after which the next step begins
        self._ranks = self._ranks_before = 0  # how many this attempt has, and the one before had
        self._gradients: "List[Tuple[torch.Tensor, Any]]" = []  # while an update is left out
        self._loaders_generators: List[torch.Generator] = []
        self._hooks = [
            optimizer.register_step_pre_hook(self._begin_update),
            optimizer.register_step_post_hook(self._end_update),
        ]

    # ---- Attempts ----

    def begin(self, why: str) -> None:
        """Gives all ranks of the new group the state of one, and goes to the start of its step under way."""
        if self._record is None:
            self._record = self._take_record()
        self._ranks_before, self._ranks = self._ranks, dist.get_world_size()
        own = Place(self._has_stayed, self._is_whole, self.done, self._has_update or self._skips_update)
        places = gather_places(own)
        source = choose_source(places)
        if source is None:
            raise RuntimeError(f"{_NAME}: no process has a whole state: the job has to start again")
        place = places[source]
        takers = [rank for rank, its in enumerate(places) if rank != source and not its.has_state_of(place)]
        has_it = dist.get_rank() not in takers
        self._is_whole = self._is_whole and has_it
        if takers:
            sent = broadcast_object(self._shared() if source == dist.get_rank() else None, source)
            if not has_it:
                take_layout(self._optimizer, sent["layout"])
            tensors = [*self._parameters.values(), *state_tensors(self._optimizer)]
            give_tensors(tensors, source, takers)
            if not has_it:
                self._take(sent, own, place)
        self.recovered = self._in_words(source, has_it, why) if place.has_stayed else ""
        self._is_whole, self._has_stayed = True, True
        self._go_to_start()

    def note_loss(self) -> None:
        """Notes what the step under way has changed so far."""
        self._is_whole = self._is_whole and not self._is_updating
        self._is_updating = False
        self._give_gradients_back()
        self._at_loss = self._changed_by_forward()

    def end(self) -> None:
        """The loop is over: its last step is done."""
        self.start()

    def close(self) -> None:
        """Takes its hooks off the optimizer."""
        for hook in self._hooks:
            hook.remove()

    def _shared(self) -> _Record:
        """Returns what ranks get that are behind, besides the contents of tensors."""
        return {
            "layout": layout_of(self._optimizer),
            "record": self._record,
            "forward": self._forward,
            "taken": self._taken,
        }

    def _take(self, sent: _Record, own: Place, place: Place) -> None:
        """Makes what was sent by the rank at `place` this process's own. Generators and buffers are each rank's: they
        stay those of this process as far as it has them for that place."""
        record = dict(sent["record"])
        forward = sent["forward"]
        before = self._record if own.has_stayed else None
        if before is None:
            record["generators"] = None
            record["position"] = (*record["position"][:2], None)
        else:
            is_same_step = place.done == own.done
            its = before if is_same_step or self._at_loss is None else self._at_loss
            record["generators"], record["buffers"] = its["generators"], its["buffers"]
            record["position"] = (*record["position"][:2], self._epochs_generators(record, before))
            if is_same_step and place.has_update:
                forward = self._forward or self._at_loss or forward
        if forward is not None and before is None:
            forward = {**forward, "generators": None}
        self._record, self._forward, self._taken = record, forward, sent["taken"]
        self.done, self._has_update, self._skips_update = place.done, place.has_update, False

    def _epochs_generators(self, record: _Record, before: _Record) -> Any:
        """Returns the generators as the epoch of a record began, if this process knows them."""
        known = [before["position"], (self.position.epoch, 0, self.position.epochs_generators)]
        return next((generators for epoch, _, generators in known if epoch == record["position"][0]), None)

    def _go_to_start(self) -> None:
        record = self._record
        assert record is not None
        set_groups(self._optimizer, copy.deepcopy(record["groups"]))
        for one, state in zip(self._objects, record["objects"]):
            restore_object(one, copy.deepcopy(state))
        epoch, batches, epochs_generators = record["position"]
        self.position.epoch, self.position.batches, self.position.epochs_generators = epoch, batches, epochs_generators
        self.position.examples, self._goes_to = record["examples"], None
        self._goes_on = record["has_begun"]
        self._start = record if record["has_begun"] else None
        if self._start is None and record["generators"] is not None:
            set_generators(record["generators"])
        self._skips_update = self._has_update or self._skips_update
        self._has_update = self._has_started = False
        for parameter in self._parameters.values():
            parameter.grad = None

    def _in_words(self, source: int, has_it: bool, why: str) -> str:
        stays = "this process has stayed" if self._has_stayed else "a new process"
        whose = "its own state" if has_it else f"the state of rank {source}"
        return f"goes on after step {self.done} with {whose}; {stays}" + (f": {why}" if why else "")

    # ---- Steps ----

    def enter_epoch(self, loader: Iterable[Any], epoch: int) -> "Iterator[Any]":
        """Returns the batches of an epoch, from the first that no done step has."""
        self._loaders_generators = generators_of(loader)
        self._buffers.find()
        position = self.position
        goes_on, self._goes_on = self._goes_on, False
        if goes_on and epoch != position.epoch:
            raise RuntimeError(
                f"{_NAME}: the loop begins with epoch {epoch}, and the training goes on in epoch {position.epoch} "
                "(for epoch in range(attempt.epoch, epochs))"
            )
        self._division = division = division_of(loader)
        self._check_division(division)
        if not goes_on:
            position.examples = 0
        example = position.examples // division.ranks
        if self._seed is not None:
            seed_generators(self._seed, "epoch", epoch, dist.get_rank())
        elif goes_on and position.epochs_generators is not None:
            set_generators(position.epochs_generators, self._loaders_generators)
        if not goes_on or position.epochs_generators is None:
            position.epochs_generators = state_of_generators(self._loaders_generators)
        position.epoch, position.batches = epoch, example // division.examples
        # An update that other ranks have computed had perhaps the last examples: its step is done again all the same.
        least = self._taken[1] if goes_on and self._skips_update and self._taken[2] != self._ranks else 0
        items = iterate_from_example(loader, example, least, draws_now=self._seed is not None)
        return self._batches_of(loader, division, items)

    def _check_division(self, division: Division) -> None:
        if division.ranks > 1 and division.ranks == self._ranks_before != self._ranks:
            raise ValueError(
                f"{_NAME}: the loader's sampler divides the data among {division.ranks} ranks, and there are "
                f"{self._ranks}: make it within the attempt"
            )

    def _batches_of(self, loader: Iterable[Any], division: Division, items: "Iterator[Any]") -> "Iterator[Any]":
        while True:
            if self._goes_to is not None:
                self._goes_to, items = None, self._batches_from(loader, self.position.examples // division.ranks)
            batch = next(items, self)  # a value that no loader has
            if batch is self:
                return
            self.position.examples += division.ranks * division.examples
            yield batch

    def _batches_from(self, loader: Iterable[Any], example: int) -> "Iterator[Any]":
        """Returns the batches of the epoch that is under way from an example on, and leaves the generators alone."""
        now = state_of_generators(self._loaders_generators)
        if self._seed is not None:
            seed_generators(self._seed, "epoch", self.position.epoch, dist.get_rank())
        elif self.position.epochs_generators is not None:
            set_generators(self.position.epochs_generators, self._loaders_generators)
        items = iterate_from_example(loader, example, draws_now=True)
        set_generators(now, self._loaders_generators)
        return items

    def start(self) -> int:
        """Marks that a step starts here. Returns how many are done."""
        is_new = not self._has_started or self._has_update
        if not self._has_started:
            self._begin_loop()
        if self._goes_to is not None:
            self.position.examples = self._goes_to
            self.position.batches = self._goes_to // self._division.ranks // self._division.examples
        if self._has_update:
            self.done += 1
        self._has_update, self._forward = False, self._forward if self._skips_update else None
        if is_new and self._seed is not None:
            seed_generators(self._seed, self.done, dist.get_rank())
        if is_new and self.survives:
            self._record = self._take_record(has_begun=True)
        return self.done

    def _begin_loop(self) -> None:
        """Undoes what the attempt has done before its first step: DistributedDataParallel has given all ranks the
        buffers of rank 0."""
        self._has_started = True
        start, self._start = self._start, None
        if start is None:
            return
        self._buffers.set(start["buffers"])
        if start["generators"] is not None:
            set_generators(start["generators"], self._loaders_generators)

    # ---- Updates ----

    def _begin_update(self, optimizer: Optimizer, args: "Tuple[Any, ...]", kwargs: "Dict[str, Any]") -> None:
        if len(args) > 1 or kwargs.get("closure") is not None:
            raise ValueError(
                f"{_NAME}: optimizer.step(closure) computes gradients within the update, which cannot be done again; "
                "compute them before step()"
            )
        if not self.survives:
            return
        if self._skips_update:
            return self._leave_update_out()
        self._forward = self._changed_by_forward()
        batches = self.position.batches - self._record["position"][1] if self._record is not None else 0
        self._taken = (self.position.examples, batches, self._ranks)
        self._is_updating = True

    def _leave_update_out(self) -> None:
        forward = self._forward
        if forward is not None:
            self._buffers.set(forward["buffers"])
            if forward["generators"] is not None and self._seed is None:
                set_generators(forward["generators"], self._loaders_generators)
        # Optimizers leave parameters alone that have no gradient.
        self._gradients = [(p, p.grad) for group in self._optimizer.param_groups for p in group["params"]]
        for parameter, _ in self._gradients:
            parameter.grad = None

    def _end_update(self, *_: Any) -> None:
        self._give_gradients_back()
        if self._skips_update and self.position.examples != self._taken[0]:
            self._goes_to = self._taken[0]
        self._is_updating = self._skips_update = False
        self._has_update = True

    def _give_gradients_back(self) -> None:
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        self._gradients = []

    # ---- Records ----

    def _changed_by_forward(self) -> _Record:
        generators = state_of_generators(self._loaders_generators)
        return {"generators": generators, "buffers": copy.deepcopy(self._buffers.get())}

    def _take_record(self, has_begun: bool = False) -> _Record:
        position = self.position
        return {
            **self._changed_by_forward(),
            "has_begun": has_begun,
            "position": (position.epoch, position.batches, position.epochs_generators),
            "examples": position.examples,
            "groups": copy.deepcopy(groups_of(self._optimizer)),
            "objects": [copy.deepcopy(state_of_object(one)) for one in self._objects],
        }


def _check(parameters: "Dict[str, torch.Tensor]", optimizer: Optimizer) -> None:
    if any(base.__name__ == "ZeroRedundancyOptimizer" for base in type(optimizer).__mro__):
        raise ValueError(f"{_NAME}: ZeroRedundancyOptimizer has state that no other rank has, which is lost with one")
    for name, parameter in parameters.items():
        if type(parameter) not in (torch.Tensor, torch.nn.Parameter) or not is_plain(parameter):
            raise ValueError(
                f"{_NAME}: {name} is a {type(parameter).__name__} ({parameter.layout}) on {parameter.device}; only "
                "plain tensors in the CPU's memory are given to new processes"
            )
