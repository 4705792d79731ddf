# SPDX-License-Identifier: BSD-3-Clause
"""What `ddprun.attempts` refuses, and in which words; and a loop that has but one attempt.
It holds with and without --on-failure replace.
"""
import os
import re

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

import ddprun
from ddprun.recovery._batches import division_of, iterate_from_example
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


def where_an_epoch_goes_on():
    """After 2 batches of 4 with 3 ranks, 2 ranks share the rest: no example is left out, and none is taken twice."""
    def loader(ranks, rank, **options):
        return DataLoader(range(60), batch_size=4, sampler=DistributedSampler(range(60), ranks, rank), **options)

    for workers in (0, 2):
        taken = [batch.tolist() for rank in range(3) for batch in list(loader(3, rank))[:2]]
        rest = [batch.tolist() for rank in range(2)
                for batch in iterate_from_example(loader(2, rank, num_workers=workers), 24 // 2)]
        assert sorted(number for batch in taken + rest for number in batch) == list(range(60)), (taken, rest)
    # It begins in the middle of what would be a batch, and batches are whole all the same.
    assert [len(batch) for batch in iterate_from_example(loader(2, 0), 6)] == [4] * 6
    first = list(iterate_from_example(loader(2, 0), 6))[0].tolist()
    assert first == list(loader(2, 0).sampler)[6:10], first
    # A step that is done again has as many batches as it had, also where fewer would be left.
    assert len(list(iterate_from_example(loader(4, 0, drop_last=True), 14))) == 0
    assert len(list(iterate_from_example(loader(4, 0, drop_last=True), 14, least=2))) == 2
    assert list(iterate_from_example(loader(4, 0), 15)) == []
    assert division_of(loader(3, 0)) == (3, 4)
    assert division_of(DataLoader(range(60), batch_size=5)) == (1, 5)
    assert division_of([1, 2, 3]) == (1, 1)
    assert list(iterate_from_example([1, 2, 3], 2)) == [3]
    one_by_one = DataLoader(range(60), batch_size=None, sampler=DistributedSampler(range(60), 2, 1, shuffle=False))
    assert list(iterate_from_example(one_by_one, 28)) == [57, 59]


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
where_an_epoch_goes_on()
one_attempt()
print(f"rank {os.environ['RANK']}: all rules hold", flush=True)
