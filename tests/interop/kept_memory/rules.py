# SPDX-License-Identifier: BSD-3-Clause
"""What `ddprun.keep` refuses, and in which words, and what it takes back. In its first life the job then fails.

usage: rules.py [plain]    (plain: ddprun has not the option --keep-memory)
"""
import copy
import io
import os
import re
import sys

import torch
import torch.distributed as dist

import ddprun
import ddprun.torch  # noqa: F401
from ddprun.recovery import _layout

RANK, LIFE = os.environ["RANK"], int(os.environ["TORCHELASTIC_RESTART_COUNT"])
made = 0


def model_and_optimizer(kind=torch.optim.AdamW, **options):
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    return model, kind(model.parameters(), lr=0.1, **options)


def kept(model, optimizer, *rest, **options):
    global made
    made += 1
    return ddprun.keep(model, optimizer, *rest, name=f"rules{made}", **options)


def train(model, optimizer, run, steps=1):
    for _ in range(steps):
        run.start_step()
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


def refused(words, action, kind=RuntimeError):
    try:
        action()
    except kind as error:
        assert re.search(words, str(error)), f"not {words}: {error}"
    else:
        raise AssertionError(f"not refused: {words}")


def what_cannot_be_kept():
    model, optimizer = model_and_optimizer()
    refused("object cannot be kept: it has no state_dict", lambda: kept(model, optimizer, extra=[object()]), ValueError)
    model, optimizer = model_and_optimizer(torch.optim.LBFGS)
    refused("not known what state LBFGS makes", lambda: kept(model, optimizer), ValueError)
    model = torch.nn.Linear(2, 2, device="meta")
    refused("weight is on meta; only the CPU.s memory", lambda: kept(model, torch.optim.SGD(model.parameters(), lr=1)),
            ValueError)
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model, _ = model_and_optimizer()
    zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, parameters_as_bucket_view=True, lr=0.1)
    refused("ZeroRedundancyOptimizer.parameters_as_bucket_view=True. has the parameters", lambda: kept(model, zero),
            ValueError)


def what_is_the_ranks_own():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model, _ = model_and_optimizer()
    zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.1)
    run = kept(model, zero)
    kinds = {kind: {name.split(": ")[-1] for name, its in run.kinds.items() if its == kind} for kind in run.kinds.values()}
    assert kinds["replicated"] == {"0.weight", "0.bias", "1.weight", "1.bias"}, kinds
    assert kinds["own"] == {"exp_avg", "exp_avg_sq", "step"}, kinds
    model, optimizer = model_and_optimizer()
    assert set(kept(model, optimizer).kinds.values()) == {"replicated"}
    try:
        from torch.distributed.tensor import DTensor, Partial, Shard, init_device_mesh
    except ImportError:  # before PyTorch 2.5
        return
    mesh = init_device_mesh("cpu", (2,))
    model = torch.nn.Linear(2, 2, bias=False)
    model.weight = torch.nn.Parameter(DTensor.from_local(torch.ones(2, 2), mesh, [Partial()]))
    refused("weight is a DTensor of partial sums", lambda: kept(model, torch.optim.SGD(model.parameters(), lr=1)),
            ValueError)
    model.weight = torch.nn.Parameter(DTensor.from_local(torch.ones(2, 2), mesh, [Shard(0)]))
    optimizer = torch.optim.SGD(model.parameters(), lr=1, momentum=0.9)
    refused("a DTensor cannot be copied at each step", lambda: kept(model, optimizer, extra=[model.weight.detach()]),
            ValueError)
    assert kept(model, optimizer).kinds == {"weight": "own", "weight: momentum_buffer": "own"}


def changes_outside_of_the_update():
    model, optimizer = model_and_optimizer()
    run = kept(model, optimizer)
    train(model, optimizer, run)
    with torch.no_grad():
        model[0].weight.clamp_(-1, 1)
    refused("0.weight was changed after an update, outside of optimizer.step", run.start_step)

    model, optimizer = model_and_optimizer()
    run = kept(model, optimizer)
    train(model, optimizer, run)
    run.start_step()
    with torch.no_grad():
        model[0].bias.zero_()
    refused("0.bias was changed between a step and its update", optimizer.step)

    model, optimizer = model_and_optimizer()
    run = kept(model, optimizer)
    train(model, optimizer, run)
    model[0].weight.data = model[0].weight.data.clone()
    refused("0.weight was replaced after the update", run.start_step)


def replaced_before_an_update():
    model, optimizer = model_and_optimizer()
    run = kept(model, optimizer)
    train(model, optimizer, run, 2)
    place = model[0].weight.data_ptr()
    run.start_step()
    state = copy.deepcopy(model.state_dict())
    state["0.weight"] += 1
    model.load_state_dict(state, assign=True)
    # Now the optimizer has other parameters than the model; those of the optimizer are still in their places.
    optimizer.param_groups[0]["params"][0].data = state["0.weight"].clone()
    assert optimizer.param_groups[0]["params"][0].data_ptr() != place
    optimizer.param_groups[0]["params"][0].grad = torch.ones(3, 4)
    optimizer.step()
    run.start_step()
    assert optimizer.param_groups[0]["params"][0].data_ptr() == place
    assert (optimizer.param_groups[0]["params"][0].mean() - state["0.weight"].mean()).abs() < 0.2

    model, optimizer = model_and_optimizer()
    run = kept(model, optimizer)
    train(model, optimizer, run)
    run.start_step()
    model.to(torch.float64)
    refused("0.weight was torch.float32 of .3, 4. when it was kept, and .* replaced by torch.float64", optimizer.step)


def replaced_state():
    model, optimizer = model_and_optimizer()
    run = kept(model, optimizer)
    train(model, optimizer, run, 2)
    weight = model[0].weight
    place = optimizer.state[weight]["exp_avg"].data_ptr()
    run.start_step()
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert optimizer.state[weight]["exp_avg"].data_ptr() != place
    optimizer.step()
    assert optimizer.state[weight]["exp_avg"].data_ptr() == place
    run.start_step()
    optimizer.step()
    optimizer.state[weight]["exp_avg"].data = optimizer.state[weight]["exp_avg"].clone()
    refused("0.weight: exp_avg was replaced after the update", run.start_step)


def closures_and_growth():
    model, optimizer = model_and_optimizer()
    run = kept(model, optimizer)
    run.start_step()
    refused("closure", lambda: optimizer.step(lambda: model(torch.ones(2, 4)).sum()))

    class Grows:
        log = []

        def state_dict(self):
            return {"log": self.log}

        def load_state_dict(self, state):
            self.log = state["log"]

    grows = Grows()
    model, optimizer = model_and_optimizer()
    run = kept(model, optimizer, extra=[grows])
    grows.log = list(range(100_000))
    refused("what a step changes has .* and there is room for .*record_bytes", run.start_step)
    model, optimizer = model_and_optimizer()
    kept(model, optimizer, extra=[grows], record_bytes=1 << 20).start_step()


def what_differs_between_ranks():
    torch.manual_seed(int(RANK))
    model, optimizer = model_and_optimizer()
    run = kept(model, optimizer)
    stderr, sys.stderr = sys.stderr, io.StringIO()
    try:
        train(model, optimizer, run)
        run.start_step()
        dist.barrier()  # rank 0 has said what it has
        run.start_step()
        said = sys.stderr.getvalue()
    finally:
        sys.stderr = stderr
    words = "2 of 4 parameters of rank 1 differ from those of rank 0 after a step: 0.weight, 0.bias. After a failure"
    assert (words in said) == (RANK == "1"), said


def no_copy(optimizer):
    raise AssertionError("the state was found out again")


def after_a_restart():
    model, optimizer = model_and_optimizer()
    find_out = _layout._copy_after_a_step
    _layout._copy_after_a_step = find_out if LIFE == 0 else no_copy
    run = ddprun.keep(model, optimizer, name="restarted")
    _layout._copy_after_a_step = find_out
    if LIFE == 0:
        assert not run.recovered, run.recovered
        for x in run.batches([torch.ones(2, 4)] * 3, 5):
            model(x).sum().backward()
            optimizer.step()
        return
    assert run.recovered.startswith("goes on after step 3"), run.recovered
    assert (run.step, run.epoch, run.batch) == (3, 5, 2), (run.step, run.epoch, run.batch)
    assert optimizer.state[model[0].weight]["step"] == 3
    refused("begins with epoch 0, and the training goes on in epoch 5", lambda: list(run.batches([1, 2, 3], 0)))
    assert list(run.batches([torch.ones(2, 4)] * 3, 5)) == []
    model, optimizer = model_and_optimizer()
    run = ddprun.keep(model, optimizer, name="overwritten")
    assert run.recovered, "not found"
    model[0].reset_parameters()
    refused("the parameters were overwritten after keep.. had recovered them", run.start_step)
    # Other settings make other state, so nothing of what was kept is used.
    model, optimizer = model_and_optimizer(amsgrad=True)
    run = ddprun.keep(model, optimizer, name="changed")
    assert not run.recovered, run.recovered
    train(model, optimizer, run, 2)


def what_the_next_life_finds():
    for name in ("overwritten", "changed"):
        model, optimizer = model_and_optimizer()
        run = ddprun.keep(model, optimizer, name=name)
        train(model, optimizer, run)
        run.start_step()


def plain():
    model, optimizer = model_and_optimizer()
    places = [parameter.data_ptr() for parameter in model.parameters()]
    run = ddprun.keep(model, optimizer)
    batches = run.batches([torch.ones(2, 4)] * 4)
    assert len(batches) == 4
    for number, x in enumerate(batches):
        assert (run.step, run.batch, run.epoch, run.recovered) == (number, number, 0, "")
        model(x).sum().backward()
        optimizer.step()
    assert run.step == 4
    assert places == [parameter.data_ptr() for parameter in model.parameters()]
    print("a plain loop counts", flush=True)


def main():
    dist.init_process_group("ddp")
    if sys.argv[1:] == ["plain"]:
        return plain()
    what_the_next_life_finds() if LIFE == 0 else None
    after_a_restart()
    for rule in (what_cannot_be_kept, what_is_the_ranks_own, changes_outside_of_the_update, replaced_before_an_update,
                 replaced_state, closures_and_growth, what_differs_between_ranks):
        rule() if LIFE == 0 else None
    print(f"rank {RANK}: all rules hold in life {LIFE}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    if LIFE == 0:
        sys.exit(1)


main()
