# SPDX-License-Identifier: BSD-3-Clause
"""What `ddprun.attempts` refuses, and in which words; and a loop that has but one attempt.
It holds with and without --on-failure replace.
"""
import os
import re

import torch
import torch.distributed as dist

import ddprun
from ddprun.recovery._transfer import Place, choose_source


def model_and_optimizer(device="cpu"):
    model = torch.nn.Linear(4, 3, device=device)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def refused(words, action, kind=ValueError):
    try:
        action()
    except kind as error:
        assert re.search(words, str(error)), f"not {words}: {error}"
    else:
        raise AssertionError(f"not refused: {words}")


def what_is_refused():
    model, optimizer = model_and_optimizer()
    refused('the backend is "nccl", and only the groups of "ddp" and "gloo"',
            lambda: ddprun.attempts(model, optimizer, backend="nccl"))
    refused("ddprun.attempts: a object cannot be kept: it has no state_dict",
            lambda: ddprun.attempts(model, optimizer, extra=[object()]))
    refused("weight is a Parameter .* on meta; only plain tensors in the CPU's memory",
            lambda: ddprun.attempts(*model_and_optimizer("meta")))


def who_is_taken_from():
    new, torn = Place(False, True, 0, False), Place(True, False, 7, False)
    half = Place(False, False, 0, False)  # it was receiving the state of a process that died, too
    at = [Place(True, True, 6, True), Place(True, True, 7, False), Place(True, True, 7, True)]
    assert choose_source([new, new]) == 0
    assert choose_source([half, new, half]) == 1
    assert choose_source([half, half]) is None
    assert choose_source([new, torn]) is None
    assert choose_source([new, torn, at[0]]) == 2
    assert choose_source([at[0], at[1], new]) == 1
    assert choose_source([at[1], at[2], at[2]]) == 1
    assert choose_source([at[1], at[1]]) == 0


def one_attempt():
    """All ranks begin with the state of rank 0, and an error of the program comes out at once."""
    rank = int(os.environ["RANK"])
    torch.manual_seed(rank)
    model, optimizer = model_and_optimizer()
    before = model.weight.detach().clone()
    numbers = []
    for attempt in ddprun.attempts(model, optimizer, backend="gloo"):
        with attempt:
            refused("there is a process group already", lambda: next(iter(ddprun.attempts(*model_and_optimizer()))),
                    RuntimeError)
            assert torch.equal(before, model.weight) == (rank == 0)
            for x in attempt.batches([torch.ones(2, 4)] * 4):
                numbers.append((attempt.number, attempt.epoch, attempt.batch, attempt.step))
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()
            assert attempt.step == 4 and not attempt.recovered
    assert numbers == [(0, 0, number, number) for number in range(4)], numbers
    assert not dist.is_initialized()
    model, optimizer = model_and_optimizer()
    refused("of the program's own", lambda: fails(model, optimizer), RuntimeError)
    dist.destroy_process_group()
    refused("an attempt was not entered", lambda: list(ddprun.attempts(*model_and_optimizer())), RuntimeError)


def fails(model, optimizer):
    for attempt in ddprun.attempts(model, optimizer):
        with attempt:
            raise RuntimeError("of the program's own")


what_is_refused()
who_is_taken_from()
one_attempt()
print(f"rank {os.environ['RANK']}: all rules hold", flush=True)
