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


# ---- Tensors of every kind: leaves, views, of inference mode, lazily conjugated, empty, overlapping ----


def in_inference_mode(tensor):
    with torch.inference_mode():
        return tensor.clone()


def channels_last(tensor):
    return tensor.view(1, 2, 2, 3).contiguous(memory_format=torch.channels_last)


def every_other(tensor):
    return torch.stack([tensor, tensor], 1).view(-1)[::2]


# Makes a tensor of 12 numbers into one of the kind.
KINDS = {
    "plain": lambda t: t,
    "a leaf": lambda t: t.requires_grad_(),
    "a leaf in channels_last": lambda t: channels_last(t).requires_grad_(),
    "a leaf that is transposed": lambda t: t.view(3, 4).t().requires_grad_(),
    "a view of a leaf": lambda t: t.requires_grad_().view(3, 4).t(),
    "a part of a leaf": lambda t: torch.cat([t, t]).requires_grad_()[12:],
    "what autograd made": lambda t: channels_last(t.requires_grad_() * 2),
    "of inference mode": in_inference_mode,
    "of inference mode, transposed": lambda t: in_inference_mode(t).view(3, 4).t(),
    "conjugated": lambda t: torch.complex(t, t + 1).conj(),
    "conjugated and transposed": lambda t: torch.complex(t, t + 1).view(3, 4).t().conj(),
    "negated": lambda t: torch.complex(t, t)[:1].conj().imag,
    "with a stride": every_other,
    "a leaf with a stride": lambda t: every_other(t).requires_grad_(),
    "a leaf without dimensions": lambda t: t.sum().requires_grad_(),
    "empty": lambda t: t[:0].view(0, 3).t(),
    "an empty leaf": lambda t: t[:0].clone().requires_grad_(),
}


def of_kind(kind, group, plus=0):
    if "stride" in kind and dist.get_backend(group) == "gloo":
        kind = "plain"  # PyTorch's Gloo uses what is between the elements
    return KINDS[kind](values(group, count=12) + plus)


def all_of(tensors):
    """Returns tensors as plain ones."""
    return [tensor.detach().clone().resolve_conj().resolve_neg().contiguous() for tensor in tensors]


def for_each_rank(kind, group):
    return [of_kind(kind, group, r) for r in range(dist.get_world_size(group))]


def reduced(kind, group):
    tensor = of_kind(kind, group)
    dist.all_reduce(tensor, group=group)
    return [tensor]


def reduced_to_one(kind, group):
    tensor = of_kind(kind, group)
    dist.reduce(tensor, peers(group)[2][0], group=group)
    return [tensor] if dist.get_rank(group) == 0 else []


def reduced_together(kind, group):
    tensors = for_each_rank(kind, group)
    group.allreduce_coalesced(tensors).wait()
    return tensors


def sent_by_one(kind, group):
    tensor = of_kind(kind, group)
    dist.broadcast(tensor, peers(group)[2][-1], group=group)
    return [tensor]


def gathered(kind, group):
    outputs = for_each_rank(kind, group)
    dist.all_gather(outputs, of_kind(kind, group), group=group)
    return outputs


def gathered_by_one(kind, group):
    outputs = for_each_rank(kind, group) if dist.get_rank(group) == 0 else None
    dist.gather(of_kind(kind, group), outputs, peers(group)[2][0], group=group)
    return outputs or []


def scattered(kind, group):
    output = of_kind(kind, group)
    dist.scatter(output, for_each_rank(kind, group) if dist.get_rank(group) == 0 else None, peers(group)[2][0],
                 group=group)
    return [output]


def reduced_and_scattered(kind, group):
    output = of_kind(kind, group)
    dist.reduce_scatter(output, for_each_rank(kind, group), group=group)
    return [output]


def gathered_into_one(kind, group):
    output = of_kind(kind, group)
    given = torch.ones(output.numel() // dist.get_world_size(group), dtype=output.dtype)
    dist.all_gather_into_tensor(output.view(-1) if output.is_contiguous() else output, given, group=group)
    return [output]


def exchanged(kind, group):
    output = of_kind(kind, group)
    dist.all_to_all_single(output, of_kind(kind, group, 1), group=group)
    return [output]


def passed_on(kind, group):
    rank, size, ranks = peers(group)
    output = of_kind(kind, group)
    work = dist.isend(of_kind(kind, group, 1), ranks[(rank + 1) % size], group, tag=4)
    dist.recv(output, ranks[(rank - 1) % size], group, tag=4)
    work.wait()
    return [output]


def declare_kinds():
    for program in (reduced, reduced_to_one, reduced_together, sent_by_one, gathered, gathered_by_one, scattered,
                    reduced_and_scattered, gathered_into_one, exchanged, passed_on):
        for kind in KINDS:
            if program is passed_on and "stride" in kind:
                continue  # PyTorch refuses such a message

            def one(group, program=program, kind=kind):
                return all_of(program(kind, group))

            one.__name__ = f"{program.__name__}: {kind}"
            one.may_do_more = True
            SAME.append(one)


declare_kinds()


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


# ---- What a Work has ----


PARTS = {
    "wait() with a timeout": lambda work: work.wait(datetime.timedelta(seconds=30)),
    "wait() with a named timeout": lambda work: work.wait(timeout=datetime.timedelta(milliseconds=30000)),
    "is_completed()": lambda work: work.wait() and work.is_completed(),
    "is_success()": lambda work: work.wait() and work.is_success(),
    "exception()": lambda work: work.wait() and work.exception(),
    "result()": lambda work: work.wait() and all_of(work.result()),
    "synchronize()": lambda work: work.synchronize(),
    "source_rank()": lambda work: work.wait() and work.source_rank(),
    "block_current_stream()": lambda work: work.block_current_stream(),
}


def each_work(group):
    """Starts operations one after the other, and gives each one's work."""
    rank, size, ranks = peers(group)
    tensors = [torch.zeros(6) for _ in range(size)]
    yield dist.all_reduce(values(group), group=group, async_op=True)
    yield dist.reduce(values(group), ranks[0], group=group, async_op=True)
    yield dist.broadcast(values(group), ranks[0], group=group, async_op=True)
    yield dist.all_gather(tensors, values(group), group=group, async_op=True)
    yield dist.gather(values(group), tensors if rank == 0 else None, ranks[0], group=group, async_op=True)
    yield dist.scatter(torch.zeros(6), tensors if rank == 0 else None, ranks[0], group=group, async_op=True)
    yield dist.reduce_scatter(torch.zeros(6), tensors, group=group, async_op=True)
    yield dist.all_to_all_single(torch.zeros(size), torch.ones(size), group=group, async_op=True)
    yield dist.barrier(group, async_op=True)
    sent = dist.isend(values(group), ranks[(rank + 1) % size], group, tag=8)
    yield dist.irecv(torch.zeros(6), ranks[(rank - 1) % size], group, tag=8)
    yield sent


# Numbers of the works that lack a part in Gloo, or whose result is not specified on all ranks.
LACKING = {"is_completed()": [6], "result()": [1, 6, 9, 10], "source_rank()": [10]}


@each("works", PARTS)
def works(part, group):
    found = []
    for number, work in enumerate(each_work(group)):
        try:
            found.append(PARTS[part](work))
        except RuntimeError as error:
            found.append(type(error))
        if part in ("synchronize()", "block_current_stream()"):
            work.wait()  # PyTorch's Gloo does not wait in them
        if number in LACKING.get(part, []):
            found[-1] = None
    return found


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


@more(lambda size, rank: [torch.tensor([1 - 2j]), torch.tensor([-3.0])])  # Gloo sends what is not yet conjugated or negated
def broadcast_of_a_conjugate_and_its_part(group):
    is_root = dist.get_rank(group) == 0
    whole, part = torch.tensor([1 + 2j]), torch.tensor([5 + 3j])
    tensors = [whole.conj(), part.conj().imag] if is_root else [whole, part.imag]
    for tensor in tensors:
        group.broadcast(tensor, 0).wait()
    return [tensor.resolve_conj().resolve_neg() for tensor in tensors]


@more(lambda size, rank: [torch.ones(2, 2) * r for r in range(size)])
def all_gather_of_an_overlapping_tensor(group):
    outputs = [torch.zeros(2, 2) for _ in range(dist.get_world_size(group))]
    dist.all_gather(outputs, torch.tensor([float(dist.get_rank(group))]).expand(2, 2), group=group)
    return outputs


@more(lambda size, rank: "refused")
def all_reduce_of_an_overlapping_tensor(group):
    try:
        dist.all_reduce(torch.ones(1).expand(4), group=group)
    except RuntimeError as error:
        return "refused" if "more than one element" in str(error) else str(error)


@more(lambda size, rank: [sums(size), 3])
def where_another_device_is_the_default(group):
    torch.set_default_device("meta")
    try:
        given = torch.arange(6.0, device="cpu") * (dist.get_rank(group) + 2) % 5 + dist.get_rank(group)
        outputs = [torch.zeros(2, 3, device="cpu").t() for _ in range(dist.get_world_size(group))]
        dist.all_gather(outputs, given.view(3, 2), group=group)
        return [sum(outputs).reshape(-1), len(outputs[0])]
    finally:
        torch.set_default_device(None)


# The Gloo of PyTorch 2.4 mixes up the elements.
@more(lambda size, rank: [torch.arange(6.0).view(2, 3).t() + r for r in range(size)] if rank == 0 else None)
def gather_not_contiguous(group):
    rank, size, ranks = peers(group)
    outputs = [torch.zeros(2, 3).t() for _ in range(size)] if rank == 0 else None
    dist.gather(transposed(group), outputs, ranks[0], group=group)
    return outputs
