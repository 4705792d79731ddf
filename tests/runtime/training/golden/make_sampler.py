# SPDX-License-Identifier: BSD-3-Clause
"""Records torch.utils.data.DistributedSampler: python make_sampler.py > sampler.txt

One line per case: length, world size, seed, epoch, shuffle, drop_last, samples per rank, and a hash of all ranks'
indices, one rank after the other. Seeds are written as unsigned 64-bit numbers, as in C++.
"""

import itertools

import torch
from torch.utils.data import DistributedSampler


def fnv(numbers):
    value = 0xCBF29CE484222325
    for number in numbers:
        value = ((value ^ number) * 0x100000001B3) & (2**64 - 1)
    return value


def line(length, world, seed, epoch, shuffle, drop_last):
    ranks = []
    for rank in range(world):
        sampler = DistributedSampler(range(length), world, rank, shuffle=shuffle, seed=seed, drop_last=drop_last)
        sampler.set_epoch(epoch)
        ranks.append(list(sampler))
        assert len(ranks[-1]) == len(sampler)
    indices = itertools.chain.from_iterable(ranks)
    return f"{length} {world} {seed % 2**64} {epoch} {shuffle:d} {drop_last:d} {len(ranks[0])} {fnv(indices)}"


def main():
    print(f"# torch {torch.__version__.split('+')[0]}, by make_sampler.py: length world seed epoch shuffle drop_last size hash")
    both = (False, True)
    # All ways in which a length and a number of ranks can relate.
    lengths = [0, 1, 2, 3, 5, 7, 8, 9, 10, 16, 17, 100, 1000]
    for length, world, shuffle, drop_last in itertools.product(lengths, [1, 2, 3, 4, 8, 16, 17], both, both):
        print(line(length, world, 7, 1, shuffle, drop_last))
    # Seeds at every border of 32 and 64 bits, also negative ones. PyTorch refuses a sum above 64
    # bits.
    seeds = [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 5 * 10**9, 2**63 - 20, 2**63 - 1, 2**63, 2**64 - 20]
    for seed, epoch in itertools.product(seeds + [-1, -2, -13, -(2**31), -(2**32) - 1, -(2**63)], [0, 1, 2, 13]):
        print(line(23, 3, seed, epoch, True, False))
    for length, world, seed in [(100003, 4, 42), (1000000, 7, 5 * 10**9), (3000001, 2, 0), (65536, 5, -1)]:
        print(line(length, world, seed, 5, True, False))


main()
