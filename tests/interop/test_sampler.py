# SPDX-License-Identifier: BSD-3-Clause
"""Random samplers return the same indices as the installed PyTorch, from the start and from the middle of an epoch.

    python test_sampler.py path/to/sampler_printer

DDPRUN_RANDOM_SEED replays a run. --large is skipped unless DDPRUN_TEST_FULL_INTEROP is set.
"""

import itertools
import os
import random
import subprocess
import sys

if "--large" in sys.argv and not os.environ.get("DDPRUN_TEST_FULL_INTEROP"):
    print("skipped: takes a minute of processor time (DDPRUN_TEST_FULL_INTEROP=1 runs it)")
    sys.exit(77)

import torch  # noqa: E402
from torch.utils.data import DistributedSampler  # noqa: E402

# From this length on, torch.randperm shuffles with another algorithm, which uses 64 random bits.
WIDE = (2**32 - 1) // 20


def fnv(numbers):
    value = 0xCBF29CE484222325
    for number in numbers:
        value = ((value ^ number) * 0x100000001B3) & (2**64 - 1)
    return value


def draw(dice):
    length = dice.choice([dice.randrange(40), dice.randrange(5000), dice.randrange(200000)])
    world = dice.choice([1, dice.randrange(1, 10), dice.randrange(1, 300)])
    epoch = dice.randrange(dice.choice([3, 10**6]))
    seed = dice.choice([dice.randrange(100), dice.randrange(-(2**63), 2**64 - 10**6), dice.randrange(2**33)])
    return length, world, dice.randrange(world), seed, epoch, dice.random() < 0.8, dice.random() < 0.5


def theirs(case):
    length, world, rank, seed, epoch, shuffle, drop_last = case
    if length == WIDE:  # does what the sampler does, without a Python list of that length
        return torch.randperm(length, generator=torch.Generator().manual_seed(seed + epoch))[rank::world].tolist()
    sampler = DistributedSampler(range(length), world, rank, shuffle=shuffle, seed=seed, drop_last=drop_last)
    sampler.set_epoch(epoch)
    return list(sampler)


def large_case():
    with open("/proc/meminfo", encoding="ascii") as facts:
        available = next(int(line.split()[1]) for line in facts if line.startswith("MemAvailable"))
    if available < 6_000_000:
        print("skipped: a permutation by 64 random bits needs 6 GB of free memory")
        sys.exit(77)
    return WIDE, 1004, 1003, 7, 0, True, True


def main():
    chosen = int(os.environ.get("DDPRUN_RANDOM_SEED", "0")) or random.randrange(1, 2**31)
    print(f"DDPRUN_RANDOM_SEED={chosen}")
    dice = random.Random(chosen)
    cases = [large_case()] if "--large" in sys.argv else [draw(dice) for _ in range(400)]
    questions, answers = [], []
    for case in cases:
        indices = theirs(case)
        consumed = dice.choice([0, dice.randrange(len(indices) + 1)])
        length, world, rank, seed, epoch, shuffle, drop_last = case
        questions.append(f"{length} {world} {rank} {seed % 2**64} {epoch} {shuffle:d} {drop_last:d} {consumed}")
        answers.append(f"{len(indices) - consumed} {fnv(itertools.islice(indices, consumed, None))}")
    ours = subprocess.run([sys.argv[1]], input="\n".join(questions), stdout=subprocess.PIPE, text=True, check=True)
    given = ours.stdout.splitlines()
    assert len(given) == len(answers), f"{len(answers)} questions, {len(given)} answers"
    for question, want, got in zip(questions, answers, given):
        assert want == got, f"{question}: torch gives {want}, we {got}"
    print(f"{len(answers)} samplers: equal")


main()
