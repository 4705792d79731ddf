// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/collective/operation.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>

#include "collectives/element_types.hpp"
#include "rendezvous/base/error.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;

constexpr std::array<const char*, 9> kReduceOps = {"sum", "average", "product", "min",         "max",
                                                   "and", "or",      "xor",     "weighted sum"};

[[noreturn]] void invalid(const std::string& message) { throw Error(ErrorCode::InvalidArgument, message); }

bool is_barrier(OperationKind kind) {
  return kind == OperationKind::Barrier || kind == OperationKind::MonitoredBarrier;
}

// Of those that have one.
bool root_gives(OperationKind kind) {
  return kind == OperationKind::Broadcast || kind == OperationKind::Scatter || kind == OperationKind::BroadcastObject ||
         kind == OperationKind::ScatterObject;
}

template <typename T>
void scale_elements(void* to, const void* from, std::size_t count, T factor) {
  T* out = static_cast<T*>(to);
  const T* in = static_cast<const T*>(from);
  for (std::size_t i = 0; i < count; ++i) out[i] = in[i] * factor;
}

}  // namespace

std::size_t dtype_size(std::int32_t dtype) { return collectives::element_size(dtype); }
const char* dtype_name(std::int32_t dtype) {
  const collectives::ElementFacts* facts = collectives::element_facts(dtype);
  return facts ? facts->name : "unknown type";
}

const char* operation_name(OperationKind kind) {
  switch (kind) {
    case OperationKind::AllReduce:
      return "all_reduce";
    case OperationKind::Reduce:
      return "reduce";
    case OperationKind::Broadcast:
      return "broadcast";
    case OperationKind::AllGather:
      return "all_gather";
    case OperationKind::Gather:
      return "gather";
    case OperationKind::Scatter:
      return "scatter";
    case OperationKind::ReduceScatter:
      return "reduce_scatter";
    case OperationKind::AllToAll:
      return "all_to_all";
    case OperationKind::Barrier:
      return "barrier";
    case OperationKind::MonitoredBarrier:
      return "monitored_barrier";
    case OperationKind::Send:
      return "send";
    case OperationKind::Receive:
      return "recv";
    case OperationKind::BroadcastObject:
      return "broadcast_object";
    case OperationKind::AllGatherObject:
      return "all_gather_object";
    case OperationKind::GatherObject:
      return "gather_object";
    case OperationKind::ScatterObject:
      return "scatter_object";
  }
  return "unknown operation";
}

const char* reduce_op_name(std::int32_t reduce_op) {
  const bool is_known = reduce_op >= 0 && static_cast<std::size_t>(reduce_op) < kReduceOps.size();
  return is_known ? kReduceOps[static_cast<std::size_t>(reduce_op)] : "unknown reduction";
}

bool has_root(OperationKind kind) {
  switch (kind) {
    case OperationKind::Reduce:
    case OperationKind::Broadcast:
    case OperationKind::Gather:
    case OperationKind::Scatter:
    case OperationKind::BroadcastObject:
    case OperationKind::GatherObject:
    case OperationKind::ScatterObject:
      return true;
    default:
      return false;
  }
}

bool is_on_objects(OperationKind kind) {
  return kind == OperationKind::BroadcastObject || kind == OperationKind::AllGatherObject ||
         kind == OperationKind::GatherObject || kind == OperationKind::ScatterObject;
}

std::size_t Operation::bytes() const {
  const std::size_t given = std::accumulate(input_counts.begin(), input_counts.end(), count * parts);
  return given * dtype_size(dtype);
}

bool Operation::is_message() const { return kind == OperationKind::Send || kind == OperationKind::Receive; }

bool Operation::reduces() const {
  return kind == OperationKind::AllReduce || kind == OperationKind::Reduce || kind == OperationKind::ReduceScatter;
}

void check_elements(const char* what, const void* data, std::size_t count, std::int32_t dtype) {
  if (dtype_size(dtype) == 0) invalid(std::string(what) + ": there is no element type " + std::to_string(dtype));
  if (data == nullptr && count > 0) {
    invalid(std::string(what) + ": null data for " + std::to_string(count) + " elements");
  }
  if (count > SIZE_MAX / 2 / dtype_size(dtype)) {
    invalid(std::string(what) + ": " + std::to_string(count) + " elements do not fit in memory");
  }
}

void check_root(const char* what, std::int32_t root, GroupPlace place) {
  if (root >= 0 && root < place.size) return;
  invalid(std::string(what) + ": root " + std::to_string(root) + " is not a rank of a group of " +
          std::to_string(place.size));
}

namespace {

void check(const char* what, const ddp_buffer& buffer) {
  check_elements(what, buffer.data, buffer.count, buffer.dtype);
  const bool known = buffer.device.kind == DDP_CPU || (buffer.device.kind == DDP_CUDA && buffer.device.index >= 0);
  if (known) return;
  invalid(std::string(what) + ": there is no device of kind " + std::to_string(buffer.device.kind) + " and index " +
          std::to_string(buffer.device.index));
}

std::int32_t device_of(const ddp_buffer& buffer) {
  return buffer.device.kind == DDP_CUDA ? buffer.device.index : kNoDevice;
}

std::string describe_device(const ddp_buffer& buffer) {
  return buffer.device.kind == DDP_CUDA ? "on cuda:" + std::to_string(buffer.device.index) : "on the CPU";
}

void check_reduction(const char* what, const ddp_reduction& reduction, std::int32_t dtype) {
  if (reduction.op < 0 || static_cast<std::size_t>(reduction.op) >= kReduceOps.size()) {
    invalid(std::string(what) + ": there is no reduction " + std::to_string(reduction.op));
  }
  const bool is_floating_point = collectives::is_floating_point(dtype);
  if ((reduction.op == DDP_AVG || reduction.op == DDP_PREMUL_SUM) && !is_floating_point) {
    invalid(std::string(what) + ": " + (reduction.op == DDP_AVG ? "an average" : "a weighted sum") + " of " +
            dtype_name(dtype) + " would round; it takes floating-point types only");
  }
  if ((reduction.op == DDP_BAND || reduction.op == DDP_BOR || reduction.op == DDP_BXOR) && is_floating_point) {
    invalid(std::string(what) + ": " + kReduceOps[static_cast<std::size_t>(reduction.op)] + " of " + dtype_name(dtype) +
            " means nothing; it takes integers only");
  }
}

// `all` holds a part for each rank, of which each is as long as `one`.
void check_parts(const char* what, const char* name_of_all, const ddp_buffer& all, const char* name_of_one,
                 const ddp_buffer& one, GroupPlace place) {
  if (device_of(one) != device_of(all)) {
    invalid(std::string(what) + ": " + name_of_one + " is " + describe_device(one) + " but " + name_of_all + " is " +
            describe_device(all));
  }
  if (one.dtype != all.dtype) {
    invalid(std::string(what) + ": " + name_of_one + " is " + dtype_name(one.dtype) + " but " + name_of_all + " is " +
            dtype_name(all.dtype));
  }
  const auto size = static_cast<std::size_t>(place.size);
  if (all.count % size == 0 && all.count / size == one.count) return;
  invalid(std::string(what) + ": " + name_of_all + " has " + std::to_string(all.count) + " elements, but " +
          std::to_string(size) + " ranks with " + std::to_string(one.count) + " each have " +
          std::to_string(size * one.count));
}

void check_counts(const char* what, const ddp_buffer& buffer, std::span<const std::size_t> counts) {
  std::size_t sum = 0;
  for (const std::size_t count : counts) {
    if (__builtin_add_overflow(sum, count, &sum)) sum = SIZE_MAX;
  }
  if (sum == buffer.count) return;
  invalid(std::string(what) + " has " + std::to_string(buffer.count) + " elements, but its counts make " +
          std::to_string(sum));
}

void check_peer(const char* what, std::int32_t peer, GroupPlace place) {
  if (peer == place.rank) {
    invalid(std::string(what) + ": rank " + std::to_string(peer) + " is this rank itself; a message is for another");
  }
  if (peer >= 0 && peer < place.size) return;
  invalid(std::string(what) + ": " + std::to_string(peer) + " is not a rank of a group of " +
          std::to_string(place.size));
}

}  // namespace

void check_buffer(const char* what, const void* data, std::size_t count, std::int32_t dtype, ddp_device device) {
  check_elements(what, data, count, dtype);
  if (device.kind != DDP_CPU) invalid(std::string(what) + ": not in CPU memory, which this takes only");
}

Operation make_all_reduce(const ddp_buffer& buffer, ddp_reduction reduction) {
  check("all_reduce", buffer);
  check_reduction("all_reduce", reduction, buffer.dtype);
  return {.kind = OperationKind::AllReduce,
          .data = buffer.data,
          .count = buffer.count,
          .dtype = buffer.dtype,
          .device = device_of(buffer),
          .reduce_op = reduction.op,
          .factor = reduction.factor};
}

Operation make_reduce(const ddp_buffer& buffer, ddp_reduction reduction, std::int32_t root, GroupPlace place) {
  check("reduce", buffer);
  check_reduction("reduce", reduction, buffer.dtype);
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
  check_reduction("reduce_scatter", reduction, input.dtype);
  check_parts("reduce_scatter", "input", input, "output", output, place);
  return {.kind = OperationKind::ReduceScatter,
          .data = output.data,
          .input = input.data,
          .count = output.count,
          .dtype = output.dtype,
          .device = device_of(output),
          .reduce_op = reduction.op,
          .factor = reduction.factor};
}

Operation make_all_to_all(const ddp_buffer& input, const std::size_t* input_counts, const ddp_buffer& output,
                          const std::size_t* output_counts, GroupPlace place) {
  check("all_to_all's input", input);
  check("all_to_all's output", output);
  if (device_of(input) != device_of(output)) {
    invalid("all_to_all: input is " + describe_device(input) + " but output is " + describe_device(output));
  }
  if (input.dtype != output.dtype) {
    invalid(std::string("all_to_all: input is ") + dtype_name(input.dtype) + " but output is " +
            dtype_name(output.dtype));
  }
  const auto size = static_cast<std::size_t>(place.size);
  Operation operation = {.kind = OperationKind::AllToAll,
                         .data = output.data,
                         .input = input.data,
                         .dtype = input.dtype,
                         .device = device_of(input)};
  if ((input_counts == nullptr) != (output_counts == nullptr)) {
    invalid("all_to_all: give counts of both the input and the output, or of neither");
  }
  if (input_counts != nullptr) {
    operation.input_counts = {input_counts, size};
    operation.output_counts = {output_counts, size};
    check_counts("all_to_all: the input", input, operation.input_counts);
    check_counts("all_to_all: the output", output, operation.output_counts);
    return operation;
  }
  if (input.count != output.count) {
    invalid("all_to_all: the input has " + std::to_string(input.count) + " elements but the output " +
            std::to_string(output.count) + "; give counts if parts differ");
  }
  if (input.count % size != 0) {
    invalid("all_to_all: the input has " + std::to_string(input.count) + " elements, which " + std::to_string(size) +
            " ranks cannot share evenly; give counts");
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
  if (place.size == 1) invalid("recv: there is nobody to receive from in a group of one");
  return {.kind = OperationKind::Receive,
          .data = buffer.data,
          .count = buffer.count,
          .dtype = buffer.dtype,
          .device = device_of(buffer),
          .root = source,
          .tag = tag};
}

std::string rank_list(const std::vector<std::size_t>& ranks) {
  constexpr std::size_t kShown = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), kShown); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  if (ranks.size() > kShown) text += " and " + std::to_string(ranks.size() - kShown) + " more";
  return text;
}

std::string human_seconds(std::chrono::milliseconds duration) {
  if (duration.count() % 1000 == 0) return std::to_string(duration.count() / 1000) + " s";
  return std::to_string(duration.count()) + " ms";
}

std::string human_bytes(std::size_t bytes) {
  if (bytes < 1000) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes);
  const char* unit = "";
  for (const char* next : {"kB", "MB", "GB", "TB"}) {
    value /= 1000;
    unit = next;
    if (value < 999.95) break;  // what would print as 1000.0
  }
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %s", value, unit);
  return text;
}

std::string numbered_name(const Operation& operation, std::uint64_t sequence) {
  return std::string(operation_name(operation.kind)) + " #" + std::to_string(sequence);
}

std::string describe(const Operation& operation, std::uint64_t sequence) {
  if (operation.is_message()) return describe_message(operation);
  std::string text = numbered_name(operation, sequence);
  // What comes of an object is not known before.
  const bool has_size = !is_barrier(operation.kind) && (!is_on_objects(operation.kind) || operation.count > 0);
  if (has_size) text += " (" + human_bytes(operation.bytes()) + ")";
  return text;
}

std::string describe_message(const Operation& operation) {
  const std::string peer = operation.root == kAnyRank ? "any rank" : "rank " + std::to_string(operation.root);
  return std::string(operation_name(operation.kind)) + (operation.kind == OperationKind::Send ? " to " : " from ") +
         peer + " (" + human_bytes(operation.bytes()) + ", tag " + std::to_string(operation.tag) + ")";
}

Fingerprint fingerprint(const Operation& operation) {
  const std::int64_t kind = static_cast<std::int64_t>(operation.kind);
  const std::int64_t what = kind | std::int64_t{operation.dtype} << 8 | std::int64_t{operation.reduce_op} << 16 |
                            std::int64_t{operation.root} << 32;
  // Of all_to_all only the type: who gives how much to whom is compared apart. Objects may be of any size.
  const bool has_count = operation.kind != OperationKind::AllToAll && !is_on_objects(operation.kind);
  return {what, has_count ? static_cast<std::int64_t>(operation.count) : 0};
}

std::string describe(const Fingerprint& fingerprint) {
  const std::int64_t what = fingerprint[0];
  const auto kind = static_cast<OperationKind>(what & 0xff);
  std::string text = operation_name(kind);
  if (!is_barrier(kind) && !is_on_objects(kind)) {
    text += " of ";
    if (kind != OperationKind::AllToAll) text += std::to_string(fingerprint[1]) + " ";
    text += dtype_name(static_cast<std::int32_t>(what >> 8 & 0xff));
  }
  if (Operation{.kind = kind}.reduces()) {
    text += std::string(" (") + reduce_op_name(static_cast<std::int32_t>(what >> 16 & 0xff)) + ")";
  }
  if (has_root(kind)) text += (root_gives(kind) ? " from rank " : " to rank ") + std::to_string(what >> 32);
  return text;
}

std::string who_called_what(const std::vector<Fingerprint>& fingerprints) {
  std::map<Fingerprint, std::vector<std::size_t>> callers;
  for (std::size_t rank = 0; rank < fingerprints.size(); ++rank) callers[fingerprints[rank]].push_back(rank);
  std::map<std::size_t, std::string> calls;  // in the order of their first caller
  for (const auto& [called, ranks] : callers) {
    calls[ranks.front()] = rank_list(ranks) + " called " + describe(called);
  }
  std::string text;
  for (const auto& [first, call] : calls) text += (text.empty() ? "" : "; ") + call;
  return text;
}

void scale(void* to, const void* from, std::size_t count, std::int32_t dtype, double factor) {
  if (dtype == DDP_FLOAT32) {
    scale_elements(to, from, count, static_cast<float>(factor));
  } else {
    scale_elements(to, from, count, factor);
  }
}

double share_of(int size, std::int32_t dtype) {
  if (dtype == DDP_FLOAT64) return 1.0 / size;
  return static_cast<double>(1.0F / static_cast<float>(size));
}

}  // namespace ddp::runtime
