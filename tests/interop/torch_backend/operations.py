# SPDX-License-Identifier: BSD-3-Clause
"""Programs of torch.distributed's operations. Each takes a group and returns what it computed, for comparison.

Values are small whole numbers, so that sums are exact in every order. `same`: PyTorch's Gloo gives an equal result, or
refuses as well. `more`: Gloo refuses, and the result must be what the program says is right.
"""
import datetime
import functools


import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

SAME, MORE = [], []
VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


def same(program):
    SAME.append(program)
    return program


def more(right):
    """The result must be right(size, rank)."""

    def declare(program):
        MORE.append((program, right))
        return program

    return declare


def each(name, values):
    """Declares a program for each of the values."""

    def declare(program):
        for value in values:
            one = functools.partial(program, value)
            one.__name__ = f"{name}: {value}"
            SAME.append(one)
        return program

    return declare


def values(group, dtype=torch.float32, count=6):
    """Returns a tensor of this rank: no two ranks' are equal."""
    numbers = torch.arange(count) * (dist.get_rank(group) + 2) % 5 + dist.get_rank(group)
    return (numbers % 2).to(dtype) if dtype is torch.bool else numbers.to(dtype)


def peers(group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    return rank, size, [dist.get_global_rank(group, r) for r in range(size)]


FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int8, torch.uint8]
OPS = [ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR]


@each("all_reduce", [(dtype, op) for dtype in FLOATS for op in OPS[:4]] + [(d, op) for d in INTEGERS for op in OPS])
def all_reduce(given, group):
    dtype, op = given
    tensor = values(group, dtype)
    dist.all_reduce(tensor, op, group=group)
    return tensor


@each("all_reduce of bool", [ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PRODUCT, ReduceOp.SUM])
def all_reduce_bool(op, group):
    tensor = values(group, torch.bool)
    dist.all_reduce(tensor, op, group=group)
    return tensor.to(torch.uint8).ne(0)  # Gloo leaves a 2 in a bool


@each("refused all_reduce", [ReduceOp.BAND, ReduceOp.BXOR])
def bitwise_of_floats(op, group):
    dist.all_reduce(values(group), op, group=group)


@same
def all_reduce_complex(group):
    tensor = torch.complex(values(group), values(group) + 1)
    dist.all_reduce(tensor, group=group)
    return tensor


@same
def all_reduce_of_complex_maxima_is_refused(group):
    dist.all_reduce(torch.complex(values(group), values(group)), ReduceOp.MAX, group=group)


@same
def all_reduce_empty(group):
    tensor = torch.empty(0)
    dist.all_reduce(tensor, group=group)
    return tensor


@same
def all_reduce_scalar_and_async(group):
    tensor = torch.tensor(dist.get_rank(group) + 1)
    work = dist.all_reduce(tensor, group=group, async_op=True)
    work.wait()
    return tensor, work.is_completed()


@same
def future_of_all_reduce(group):
    tensor = values(group)
    future = dist.all_reduce(tensor, group=group, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    return doubled.wait()


@same
def all_reduce_coalesced(group):
    tensors = [values(group), values(group, count=3)]
    with dist._coalescing_manager(group):
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    return tensors


@same
def reduce(group):
    rank, size, ranks = peers(group)
    tensor = values(group)
    dist.reduce(tensor, ranks[size - 1], group=group)
    return tensor if rank == size - 1 else None


@same
def broadcast(group):
    _, size, ranks = peers(group)
    tensors = [values(group, dtype) for dtype in FLOATS + INTEGERS + [torch.bool]]
    for tensor in tensors:
        dist.broadcast(tensor, ranks[size - 1], group=group)
    return tensors


@each("all_gather", FLOATS + INTEGERS + [torch.bool])
def all_gather(dtype, group):
    outputs = [torch.zeros(2, 3).to(dtype) for _ in range(dist.get_world_size(group))]
    dist.all_gather(outputs, values(group, dtype).view(2, 3), group=group)
    return outputs


@same
def all_gather_into_chunks(group):
    flat = torch.zeros(6 * dist.get_world_size(group))
    dist.all_gather(list(flat.chunk(dist.get_world_size(group))), values(group), group=group)
    return flat


@same
def all_gather_complex(group):
    outputs = [torch.zeros(6, dtype=torch.complex64) for _ in range(dist.get_world_size(group))]
    dist.all_gather(outputs, torch.complex(values(group), values(group) + 1), group=group)
    return outputs


@same
def all_gather_of_other_sizes_is_refused(group):
    dist.all_gather([torch.zeros(7) for _ in range(dist.get_world_size(group))], values(group), group=group)


@same
def all_gather_of_another_type_is_refused(group):
    dist.all_gather([torch.zeros(6).int() for _ in range(dist.get_world_size(group))], values(group), group=group)


@same
def all_gather_into_too_few_is_refused(group):
    dist.all_gather([torch.zeros(6)] * (dist.get_world_size(group) - 1), values(group), group=group)


@same
def all_gather_into_tensor(group):
    output = torch.zeros(6 * dist.get_world_size(group))
    dist.all_gather_into_tensor(output, values(group), group=group)
    return output


@same
def all_gather_into_a_wrong_tensor_is_refused(group):
    dist.all_gather_into_tensor(torch.zeros(5), values(group), group=group)


@same
def all_gather_coalesced(group):
    size = dist.get_world_size(group)
    outputs = [[torch.zeros(6), torch.zeros(2)] for _ in range(size)]
    group.allgather_coalesced(outputs, [values(group), values(group, count=2)]).wait()
    return outputs


@same
def gather(group):
    rank, size, ranks = peers(group)
    outputs = [torch.zeros(6) for _ in range(size)] if rank == size - 1 else None
    dist.gather(values(group), outputs, ranks[size - 1], group=group)
    return outputs


@same
def works_without_a_result_are_completed(group):
    rank, size, ranks = peers(group)
    outputs = [torch.zeros(6) for _ in range(size)] if rank == 0 else None
    works = [dist.gather(values(group), outputs, ranks[0], group=group, async_op=True),
             dist.barrier(group, async_op=True)]
    for work in works:
        work.wait()
    return [work.is_completed() for work in works]


@same
def scatter(group):
    rank, size, ranks = peers(group)
    output = torch.zeros(3)
    inputs = [torch.full((3,), float(r)) for r in range(size)] if rank == size - 1 else None
    dist.scatter(output, inputs, ranks[size - 1], group=group)
    return output


@each("reduce_scatter", [ReduceOp.SUM, ReduceOp.MAX])
def reduce_scatter(op, group):
    output = torch.zeros(6)
    dist.reduce_scatter(output, [values(group) + r for r in range(dist.get_world_size(group))], op, group=group)
    return output


@same
def reduce_scatter_tensor(group):
    output = torch.zeros(6)
    dist.reduce_scatter_tensor(output, values(group, count=6 * dist.get_world_size(group)), group=group)
    return output


@same
def all_to_all_single(group):
    given = values(group, count=3 * dist.get_world_size(group))
    output = torch.zeros_like(given)
    dist.all_to_all_single(output, given, group=group)
    return output


@same
def all_to_all_single_with_uneven_splits(group):
    rank, size, _ = peers(group)
    given = values(group, count=2 * (size * rank + size * (size - 1) // 2)).view(-1, 2)
    output = torch.zeros(size * rank + size * (size - 1) // 2, 2)
    dist.all_to_all_single(output, given, [rank + r for r in range(size)], [rank + r for r in range(size)], group=group)
    return output


@same
def all_to_all_single_with_wrong_splits_is_refused(group):
    dist.all_to_all_single(torch.zeros(6), values(group), [1] * dist.get_world_size(group), group=group)


@same
def barrier(group):
    dist.barrier(group=group)


@same
def monitored_barrier(group):
    if dist.get_backend(group) == "gloo" or VERSION >= (2, 14):
        dist.monitored_barrier(group, datetime.timedelta(seconds=30))


# ---- Tensors that are not contiguous ----


def transposed(group, offset=0):
    return (torch.arange(6.0).view(2, 3) + dist.get_rank(group) + offset).t()


@same
def all_reduce_not_contiguous(group):
    tensor = transposed(group)
    dist.all_reduce(tensor, group=group)
    return tensor


@same
def reduce_not_contiguous(group):
    rank, size, ranks = peers(group)
    tensor = transposed(group)
    dist.reduce(tensor, ranks[0], group=group)
    return tensor if rank == 0 else None


@same
def broadcast_not_contiguous(group):
    tensor = transposed(group)
    dist.broadcast(tensor, peers(group)[2][0], group=group)
    return tensor


@same
def all_gather_not_contiguous(group):
    outputs = [torch.zeros(2, 3).t() for _ in range(dist.get_world_size(group))]
    dist.all_gather(outputs, transposed(group), group=group)
    return outputs


@same
def all_gather_into_tensor_not_contiguous(group):
    output = torch.zeros(2, 3 * dist.get_world_size(group)).t()
    dist.all_gather_into_tensor(output, transposed(group), group=group)
    return output


@same
def scatter_not_contiguous(group):
    rank, size, ranks = peers(group)
    output = torch.zeros(2, 3).t()
    dist.scatter(output, [transposed(group, r) for r in range(size)] if rank == 0 else None, ranks[0], group=group)
    return output


@same
def reduce_scatter_not_contiguous(group):
    output = torch.zeros(2, 3).t()
    dist.reduce_scatter(output, [transposed(group, r) for r in range(dist.get_world_size(group))], group=group)
    return output


@same
def reduce_scatter_tensor_not_contiguous(group):
    output = torch.zeros(2, 3).t()
    size = dist.get_world_size(group)
    dist.reduce_scatter_tensor(output, torch.arange(6.0 * size).view(2, -1).t(), group=group)
    return output


@same
def all_reduce_avg(group):
    tensor = values(group) * 4
    dist.all_reduce(tensor, ReduceOp.AVG, group=group)
    return tensor


@same
def all_reduce_avg_of_integers_is_refused(group):
    dist.all_reduce(values(group, torch.int64), ReduceOp.AVG, group=group)


# ---- Messages ----


@each("send and recv", FLOATS + INTEGERS + [torch.bool, torch.complex64])
def ring(dtype, group):
    rank, size, ranks = peers(group)
    given, output = values(group, dtype), torch.zeros(6).to(dtype)
    work = dist.isend(given, ranks[(rank + 1) % size], group, tag=3)
    source = dist.recv(output, ranks[(rank - 1) % size], group, tag=3)
    work.wait()
    return output, source


@same
def messages_by_tag(group):
    rank, size, ranks = peers(group)
    outputs = torch.zeros(3), torch.zeros(3)
    sent = [dist.isend(torch.full((3,), 10.0 * rank + tag), ranks[(rank + 1) % size], group, tag) for tag in (1, 2)]
    received = [dist.irecv(outputs[tag - 1], ranks[(rank - 1) % size], group, tag) for tag in (2, 1)]
    for work in received[::-1] + sent:
        work.wait()
    return outputs


@same
def recv_from_any(group):
    rank, size, ranks = peers(group)
    if rank > 0:
        dist.send(torch.tensor([float(rank)]), ranks[0], group, tag=5)
        return None
    found = {}
    for _ in range(size - 1):
        output = torch.zeros(1)
        source = dist.recv(output, group=group, tag=5)
        found[source] = output.item()
    return sorted(found.items())


@same
def batch_isend_irecv(group):
    rank, size, ranks = peers(group)
    output = torch.zeros(6)
    works = dist.batch_isend_irecv([dist.P2POp(dist.irecv, output, ranks[(rank - 1) % size], group),
                                    dist.P2POp(dist.isend, values(group), ranks[(rank + 1) % size], group)])
    for work in works:
        work.wait()
    return output


@same
def a_message_that_is_not_contiguous_is_refused(group):
    rank, size, ranks = peers(group)
    dist.isend(torch.zeros(4, 4).t(), ranks[(rank + 1) % size], group)


# ---- Objects ----


@same
def objects(group):
    rank, size, ranks = peers(group)
    mine = {"rank": rank, "text": "x" * (rank + 1) * 100}
    gathered, at_root, broadcast, scattered = [None] * size, [None] * size, [mine, rank], [None]
    dist.all_gather_object(gathered, mine, group=group)
    dist.gather_object(mine, at_root if rank == 0 else None, ranks[0], group=group)
    dist.broadcast_object_list(broadcast, ranks[size - 1], group=group)
    dist.scatter_object_list(scattered, [(r, "for you") for r in range(size)], ranks[0], group=group)
    return gathered, at_root, broadcast, scattered


# ---- What Gloo refuses, or does to the wrong elements ----


def sums(size, dtype=torch.float32, count=6):
    return torch.stack([torch.arange(count) * (r + 2) % 5 + r for r in range(size)]).sum(0).to(dtype)


@more(lambda size, rank: sums(size, torch.int16))
def all_reduce_int16(group):
    tensor = values(group, torch.int16)
    dist.all_reduce(tensor, group=group)
    return tensor


@more(lambda size, rank: torch.stack([torch.arange(6.0) * (r + 2) % 5 + r for r in range(size)]))
def all_gather_into_tensor_of_rows(group):
    output = torch.zeros(dist.get_world_size(group), 6)
    dist.all_gather_into_tensor(output, values(group), group=group)
    return output


@more(lambda size, rank: sums(size) * 2)
def all_reduce_premul_sum(group):
    tensor = values(group)
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(2.0), group=group)
    return tensor


@more(lambda size, rank: [torch.tensor([r + 1j]) for r in range(size)])
def all_to_all_of_complex(group):
    rank, size, _ = peers(group)
    outputs = [torch.zeros(1, dtype=torch.complex64) for _ in range(size)]
    group.alltoall(outputs, [torch.tensor([rank + 1j]) for _ in range(size)]).wait()
    return outputs


@more(lambda size, rank: torch.arange(8.0) * torch.tensor([size, 1.0] * 4))  # Gloo writes between the elements
def all_reduce_every_other(group):
    whole = torch.arange(8.0)
    dist.all_reduce(whole[::2], group=group)
    return whole


@more(lambda size, rank: torch.stack([torch.arange(4.0 * size).view(2, -1).t()[2 * rank + i] + r
                                     for r in range(size) for i in range(2)]))
def all_to_all_single_not_contiguous(group):
    size = dist.get_world_size(group)
    output = torch.zeros(2, 2 * size).t()
    dist.all_to_all_single(output, torch.arange(4.0 * size).view(2, -1).t() + dist.get_rank(group), group=group)
    return output


# The Gloo of PyTorch 2.4 mixes up the elements.
@more(lambda size, rank: [torch.arange(6.0).view(2, 3).t() + r for r in range(size)] if rank == 0 else None)
def gather_not_contiguous(group):
    rank, size, ranks = peers(group)
    outputs = [torch.zeros(2, 3).t() for _ in range(size)] if rank == 0 else None
    dist.gather(transposed(group), outputs, ranks[0], group=group)
    return outputs
