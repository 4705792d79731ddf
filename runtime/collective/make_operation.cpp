// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/collective/make_operation.hpp"

#include <optional>
#include <string>

#include "collectives/element_types.hpp"
#include "collectives/reduce_op.hpp"
#include "rendezvous/base/error.hpp"
#include "runtime/base/buffer.hpp"
#include "runtime/collective/describe_operation.hpp"

namespace ddp::runtime {
namespace {

using collectives::ReduceOp;
using rendezvous::invalid_argument;

void check(const char* what, const ddp_buffer& buffer) {
  check_elements(what, buffer.data, buffer.count, buffer.dtype);
  const bool known = buffer.device.kind == DDP_CPU || (buffer.device.kind == DDP_CUDA && buffer.device.index >= 0);
  if (known) return;
  invalid_argument(std::string(what) + ": there is no device of kind " + std::to_string(buffer.device.kind) +
                   " and index " + std::to_string(buffer.device.index));
}

std::int32_t device_of(const ddp_buffer& buffer) {
  return buffer.device.kind == DDP_CUDA ? buffer.device.index : kNoDevice;
}

std::string describe_device(const ddp_buffer& buffer) {
  return buffer.device.kind == DDP_CUDA ? "on cuda:" + std::to_string(buffer.device.index) : "on the CPU";
}

static_assert(static_cast<int>(ReduceOp::Sum) == DDP_SUM && static_cast<int>(ReduceOp::Average) == DDP_AVG &&
              static_cast<int>(ReduceOp::Product) == DDP_PRODUCT && static_cast<int>(ReduceOp::Min) == DDP_MIN &&
              static_cast<int>(ReduceOp::Max) == DDP_MAX && static_cast<int>(ReduceOp::And) == DDP_BAND &&
              static_cast<int>(ReduceOp::Or) == DDP_BOR && static_cast<int>(ReduceOp::ExclusiveOr) == DDP_BXOR &&
              static_cast<int>(ReduceOp::WeightedSum) == DDP_PREMUL_SUM);

ReduceOp checked_reduce_op(const char* what, const ddp_reduction& reduction, std::int32_t dtype) {
  const std::optional<ReduceOp> op = collectives::to_reduce_op(reduction.op);
  if (!op) invalid_argument(std::string(what) + ": there is no reduction " + std::to_string(reduction.op));
  const bool is_floating_point = collectives::is_floating_point(dtype);
  if ((op == ReduceOp::Average || op == ReduceOp::WeightedSum) && !is_floating_point) {
    invalid_argument(std::string(what) + ": " + (op == ReduceOp::Average ? "an average" : "a weighted sum") + " of " +
                     dtype_name(dtype) + " would round; it takes floating-point types only");
  }
  if (is_bitwise(*op) && is_floating_point) {
    invalid_argument(std::string(what) + ": " + reduce_op_name(*op) + " of " + dtype_name(dtype) +
                     " means nothing; it takes integers only");
  }
  return *op;
}

// `all` holds a part for each rank, of which each is as long as `one`.
void check_parts(const char* what, const char* name_of_all, const ddp_buffer& all, const char* name_of_one,
                 const ddp_buffer& one, GroupPlace place) {
  if (device_of(one) != device_of(all)) {
    invalid_argument(std::string(what) + ": " + name_of_one + " is " + describe_device(one) + " but " + name_of_all +
                     " is " + describe_device(all));
  }
  if (one.dtype != all.dtype) {
    invalid_argument(std::string(what) + ": " + name_of_one + " is " + dtype_name(one.dtype) + " but " + name_of_all +
                     " is " + dtype_name(all.dtype));
  }
  const auto size = static_cast<std::size_t>(place.size);
  if (all.count % size == 0 && all.count / size == one.count) return;
  invalid_argument(std::string(what) + ": " + name_of_all + " has " + std::to_string(all.count) + " elements, but " +
                   std::to_string(size) + " ranks with " + std::to_string(one.count) + " each have " +
                   std::to_string(size * one.count));
}

void check_counts(const char* what, const ddp_buffer& buffer, std::span<const std::size_t> counts) {
  std::size_t sum = 0;
  for (const std::size_t count : counts) {
    if (__builtin_add_overflow(sum, count, &sum)) sum = SIZE_MAX;
  }
  if (sum == buffer.count) return;
  invalid_argument(std::string(what) + " has " + std::to_string(buffer.count) + " elements, but its counts add up to " +
                   std::to_string(sum));
}

void check_peer(const char* what, std::int32_t peer, GroupPlace place) {
  if (peer == place.rank) {
    invalid_argument(std::string(what) + ": rank " + std::to_string(peer) + " is this rank itself; give another rank");
  }
  if (peer >= 0 && peer < place.size) return;
  invalid_argument(std::string(what) + ": " + std::to_string(peer) + " is not a rank of a group of " +
                   std::to_string(place.size));
}

}  // namespace

void check_root(const char* what, std::int32_t root, GroupPlace place) {
  if (root >= 0 && root < place.size) return;
  invalid_argument(std::string(what) + ": root " + std::to_string(root) + " is not a rank of a group of " +
                   std::to_string(place.size));
}

Operation make_all_reduce(const ddp_buffer& buffer, ddp_reduction reduction) {
  check("all_reduce", buffer);
  return {.kind = OperationKind::AllReduce,
          .data = buffer.data,
          .count = buffer.count,
          .dtype = buffer.dtype,
          .device = device_of(buffer),
          .reduce_op = checked_reduce_op("all_reduce", reduction, buffer.dtype),
          .factor = reduction.factor};
}

Operation make_reduce(const ddp_buffer& buffer, ddp_reduction reduction, std::int32_t root, GroupPlace place) {
  check("reduce", buffer);
  checked_reduce_op("reduce", reduction, buffer.dtype);
  check_root("reduce", root, place);
  Operation operation = make_all_reduce(buffer, reduction);
  operation.kind = OperationKind::Reduce;
  operation.root = root;
  return operation;
}

Operation make_broadcast(const ddp_buffer& buffer, std::int32_t root, GroupPlace place) {
  check("broadcast", buffer);
  check_root("broadcast", root, place);
  return {.kind = OperationKind::Broadcast,
          .data = buffer.data,
          .count = buffer.count,
          .dtype = buffer.dtype,
          .device = device_of(buffer),
          .root = root};
}

Operation make_all_gather(const ddp_buffer& input, const ddp_buffer& output, GroupPlace place) {
  check("all_gather's input", input);
  check("all_gather's output", output);
  check_parts("all_gather", "output", output, "input", input, place);
  return {.kind = OperationKind::AllGather,
          .data = output.data,
          .input = input.data,
          .count = input.count,
          .dtype = input.dtype,
          .device = device_of(input)};
}

Operation make_gather(const ddp_buffer& input, const ddp_buffer& output, std::int32_t root, GroupPlace place) {
  check("gather's input", input);
  check_root("gather", root, place);
  const bool is_root = place.rank == root;
  if (is_root) {
    check("gather's output", output);
    check_parts("gather", "output", output, "input", input, place);
  }
  return {.kind = OperationKind::Gather,
          .data = is_root ? output.data : nullptr,
          .input = input.data,
          .count = input.count,
          .dtype = input.dtype,
          .device = device_of(input),
          .root = root};
}

Operation make_scatter(const ddp_buffer& input, const ddp_buffer& output, std::int32_t root, GroupPlace place) {
  check("scatter's output", output);
  check_root("scatter", root, place);
  const bool is_root = place.rank == root;
  if (is_root) {
    check("scatter's input", input);
    check_parts("scatter", "input", input, "output", output, place);
  }
  return {.kind = OperationKind::Scatter,
          .data = output.data,
          .input = is_root ? input.data : nullptr,
          .count = output.count,
          .dtype = output.dtype,
          .device = device_of(output),
          .root = root};
}

Operation make_reduce_scatter(const ddp_buffer& input, const ddp_buffer& output, ddp_reduction reduction,
                              GroupPlace place) {
  check("reduce_scatter's input", input);
  check("reduce_scatter's output", output);
  const ReduceOp reduce_op = checked_reduce_op("reduce_scatter", reduction, input.dtype);
  check_parts("reduce_scatter", "input", input, "output", output, place);
  return {.kind = OperationKind::ReduceScatter,
          .data = output.data,
          .input = input.data,
          .count = output.count,
          .dtype = output.dtype,
          .device = device_of(output),
          .reduce_op = reduce_op,
          .factor = reduction.factor};
}

Operation make_all_to_all(const ddp_buffer& input, const std::size_t* input_counts, const ddp_buffer& output,
                          const std::size_t* output_counts, GroupPlace place) {
  check("all_to_all's input", input);
  check("all_to_all's output", output);
  if (device_of(input) != device_of(output)) {
    invalid_argument("all_to_all: input is " + describe_device(input) + " but output is " + describe_device(output));
  }
  if (input.dtype != output.dtype) {
    invalid_argument(std::string("all_to_all: input is ") + dtype_name(input.dtype) + " but output is " +
                     dtype_name(output.dtype));
  }
  const auto size = static_cast<std::size_t>(place.size);
  Operation operation = {.kind = OperationKind::AllToAll,
                         .data = output.data,
                         .input = input.data,
                         .dtype = input.dtype,
                         .device = device_of(input)};
  if ((input_counts == nullptr) != (output_counts == nullptr)) {
    invalid_argument("all_to_all: give counts of both the input and the output, or of neither");
  }
  if (input_counts != nullptr) {
    operation.input_counts = {input_counts, size};
    operation.output_counts = {output_counts, size};
    check_counts("all_to_all: the input", input, operation.input_counts);
    check_counts("all_to_all: the output", output, operation.output_counts);
    const auto self = static_cast<std::size_t>(place.rank);
    if (input_counts[self] == output_counts[self]) return operation;
    invalid_argument("all_to_all: rank " + std::to_string(self) + " sends " + std::to_string(input_counts[self]) +
                     " elements to itself, but its output has a place for " + std::to_string(output_counts[self]));
  }
  if (input.count != output.count) {
    invalid_argument("all_to_all: the input has " + std::to_string(input.count) + " elements but the output " +
                     std::to_string(output.count) + "; give counts if parts differ");
  }
  if (input.count % size != 0) {
    invalid_argument("all_to_all: the input has " + std::to_string(input.count) + " elements, which " +
                     std::to_string(size) + " ranks cannot share evenly; give counts");
  }
  operation.count = input.count / size;
  operation.parts = size;
  return operation;
}

Operation make_send(const ddp_buffer& buffer, std::int32_t destination, std::uint32_t tag, GroupPlace place) {
  check("send", buffer);
  check_peer("send", destination, place);
  return {.kind = OperationKind::Send,
          .input = buffer.data,
          .count = buffer.count,
          .dtype = buffer.dtype,
          .device = device_of(buffer),
          .root = destination,
          .tag = tag};
}

Operation make_receive(const ddp_buffer& buffer, std::int32_t source, std::uint32_t tag, GroupPlace place) {
  check("recv", buffer);
  if (source != kAnyRank) check_peer("recv", source, place);
  if (place.size == 1) invalid_argument("recv: there is no rank to receive from in a group of one");
  return {.kind = OperationKind::Receive,
          .data = buffer.data,
          .count = buffer.count,
          .dtype = buffer.dtype,
          .device = device_of(buffer),
          .root = source,
          .tag = tag};
}

}  // namespace ddp::runtime
