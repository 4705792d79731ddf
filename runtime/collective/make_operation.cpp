// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/collective/make_operation.hpp"

#include <optional>
#include <string>
#include <vector>

#include "collectives/element_types.hpp"
#include "collectives/reduce_op.hpp"
#include "rendezvous/base/error.hpp"
#include "runtime/base/buffer.hpp"
#include "runtime/collective/describe_operation.hpp"
#include "runtime/collective/object_collectives.hpp"

namespace ddp::runtime {
namespace {

using collectives::ReduceOp;
using rendezvous::invalid_argument;

// `what` and `part` begin the message, such as "gather" and "'s input".
void check(const char* what, const char* part, const ddp_buffer& buffer) {
  check_elements(what, buffer.data, buffer.count, buffer.dtype, part);
  check_device(what, buffer.device, part);
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
  if ((*op == ReduceOp::Average || *op == ReduceOp::WeightedSum) && !is_floating_point) {
    invalid_argument(std::string(what) + ": " + (*op == ReduceOp::Average ? "an average" : "a weighted sum") + " of " +
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

void check_root(const char* what, std::int32_t root, GroupPlace place) {
  if (root >= 0 && root < place.size) return;
  invalid_argument(std::string(what) + ": root " + std::to_string(root) + " is not a rank of a group of " +
                   std::to_string(place.size));
}

// Sets what an operation takes from the buffer that is as long as what each rank contributes or gets.
void measure(Operation& operation, const ddp_buffer& buffer) {
  operation.count = buffer.count;
  operation.dtype = buffer.dtype;
  operation.device = device_of(buffer);
}

void set_parts(Operation& operation, const ddp_operation& given, GroupPlace place) {
  const ddp_buffer &input = given.input, &output = given.output;
  if (device_of(input) != device_of(output)) {
    invalid_argument("all_to_all: input is " + describe_device(input) + " but output is " + describe_device(output));
  }
  if (input.dtype != output.dtype) {
    invalid_argument(std::string("all_to_all: input is ") + dtype_name(input.dtype) + " but output is " +
                     dtype_name(output.dtype));
  }
  const auto size = static_cast<std::size_t>(place.size);
  if ((given.input_counts == nullptr) != (given.output_counts == nullptr)) {
    invalid_argument("all_to_all: give counts of both the input and the output, or of neither");
  }
  if (given.input_counts != nullptr) {
    operation.count = 0;
    operation.input_counts = {given.input_counts, size};
    operation.output_counts = {given.output_counts, size};
    check_counts("all_to_all: the input", input, operation.input_counts);
    check_counts("all_to_all: the output", output, operation.output_counts);
    const auto self = static_cast<std::size_t>(place.rank);
    const std::size_t sent = given.input_counts[self], received = given.output_counts[self];
    if (sent == received) return;
    invalid_argument("all_to_all: rank " + std::to_string(self) + " sends " + std::to_string(sent) +
                     " elements to itself, but its output has a place for " + std::to_string(received));
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
}

void take_objects(Operation& operation, const ddp_operation& given, GroupPlace place, ObjectExchange& exchange) {
  const std::string what = operation_name(operation.kind);
  const bool scatters = operation.kind == OperationKind::ScatterObject;
  const bool gives = place.rank == operation.root || (operation.kind != OperationKind::BroadcastObject && !scatters);
  std::vector<ddp_bytes> objects;
  if (gives) {
    const std::size_t wanted = scatters ? static_cast<std::size_t>(place.size) : 1;
    const std::string count = std::to_string(given.object_count) + " objects";
    if (given.object_count != wanted) {
      invalid_argument(
          what + (scatters ? ": root has " + count + " for " + std::to_string(wanted) + " ranks; give one for each"
                           : ": given " + count + "; give one"));
    }
    if (given.objects == nullptr) invalid_argument(what + ": the list of objects is null");
    objects.assign(given.objects, given.objects + wanted);
  }
  for (const ddp_bytes& object : objects) {
    if (object.data != nullptr || object.size == 0) continue;
    invalid_argument(what + ": null data for an object of " + std::to_string(object.size) + " bytes");
  }
  exchange.give(std::move(objects));
  operation.count = exchange.given_bytes();
  operation.objects = &exchange;
}

}  // namespace

Operation make_operation(const ddp_operation& given, GroupPlace place, ObjectExchange* exchange) {
  if (given.size != sizeof given) {
    invalid_argument("ddp_operation: its size is " + std::to_string(given.size) + " bytes, but this libddp's is " +
                     std::to_string(sizeof given) + ": begin with ddp_operation_of()");
  }
  if (given.kind < DDP_ALL_REDUCE || given.kind > DDP_SCATTER_OBJECT) {
    invalid_argument("there is no operation of kind " + std::to_string(given.kind));
  }
  Operation operation = {.kind = static_cast<OperationKind>(given.kind)};
  const char* const what = operation_name(operation.kind);
  const ddp_buffer &input = given.input, &output = given.output;
  if (has_root(operation.kind)) {
    check_root(what, given.root, place);
    operation.root = given.root;
  }
  const bool is_root = !has_root(operation.kind) || given.root == place.rank;  // and so has all parts
  switch (operation.kind) {
    case OperationKind::AllReduce:
    case OperationKind::Reduce:
    case OperationKind::Broadcast:
      check(what, "", output);
      measure(operation, output);
      operation.data = output.data;
      break;
    case OperationKind::AllGather:
    case OperationKind::Gather:
      check(what, "'s input", input);
      measure(operation, input);
      operation.input = input.data;
      if (!is_root) break;
      check(what, "'s output", output);
      check_parts(what, "output", output, "input", input, place);
      operation.data = output.data;
      break;
    case OperationKind::Scatter:
    case OperationKind::ReduceScatter:
      check(what, "'s output", output);
      measure(operation, output);
      operation.data = output.data;
      if (!is_root) break;
      check(what, "'s input", input);
      check_parts(what, "input", input, "output", output, place);
      operation.input = input.data;
      break;
    case OperationKind::AllToAll:
      check(what, "'s input", input);
      check(what, "'s output", output);
      measure(operation, input);
      operation.input = input.data;
      operation.data = output.data;
      set_parts(operation, given, place);
      break;
    case OperationKind::Send:
      check(what, "", input);
      check_peer(what, given.root, place);
      measure(operation, input);
      operation.input = input.data;
      operation.root = given.root;
      operation.tag = given.tag;
      break;
    case OperationKind::Receive:
      check(what, "", output);
      if (given.root != kAnyRank) check_peer(what, given.root, place);
      if (place.size == 1) invalid_argument("recv: there is no rank to receive from in a group of one");
      measure(operation, output);
      operation.data = output.data;
      operation.root = given.root;
      operation.tag = given.tag;
      break;
    case OperationKind::MonitoredBarrier:
      operation.all_missing = given.wait_all_ranks != 0;
      break;
    case OperationKind::BroadcastObject:
    case OperationKind::AllGatherObject:
    case OperationKind::GatherObject:
    case OperationKind::ScatterObject:
      take_objects(operation, given, place, *exchange);
      break;
    case OperationKind::Barrier:
    case OperationKind::Allocate:
      break;
  }
  if (operation.reduces()) {
    operation.reduce_op = checked_reduce_op(what, given.reduction, operation.dtype);
    operation.factor = given.reduction.factor;
  }
  return operation;
}

}  // namespace ddp::runtime
