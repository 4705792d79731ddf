// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/src/operation.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

#include "rendezvous/error.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;

struct DtypeFacts {
  const char* name;
  std::size_t size;
};
constexpr std::array<DtypeFacts, 5> kDtypes = {
    {{"float32", 4}, {"float64", 8}, {"int32", 4}, {"int64", 8}, {"uint8", 1}}};
constexpr std::array<const char*, 5> kReduceOps = {"sum", "average", "product", "min", "max"};

bool known(std::int32_t dtype) { return dtype >= 0 && static_cast<std::size_t>(dtype) < kDtypes.size(); }

[[noreturn]] void invalid(const std::string& message) { throw Error(ErrorCode::InvalidArgument, message); }

std::string rank_list(const std::vector<std::size_t>& ranks) {
  constexpr std::size_t kShown = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), kShown); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  if (ranks.size() > kShown) text += " and " + std::to_string(ranks.size() - kShown) + " more";
  return text;
}

template <typename T>
void scale_elements(void* to, const void* from, std::size_t count, int size) {
  const T factor = T(1) / static_cast<T>(size);
  T* out = static_cast<T*>(to);
  const T* in = static_cast<const T*>(from);
  for (std::size_t i = 0; i < count; ++i) out[i] = in[i] * factor;
}

}  // namespace

std::size_t dtype_size(std::int32_t dtype) { return known(dtype) ? kDtypes[static_cast<std::size_t>(dtype)].size : 0; }
const char* dtype_name(std::int32_t dtype) {
  return known(dtype) ? kDtypes[static_cast<std::size_t>(dtype)].name : "unknown type";
}

const char* operation_name(OperationKind kind) {
  switch (kind) {
    case OperationKind::AllReduce:
      return "all_reduce";
    case OperationKind::Broadcast:
      return "broadcast";
    case OperationKind::AllGather:
      return "all_gather";
    case OperationKind::Barrier:
      return "barrier";
  }
  return "unknown operation";
}

std::size_t Operation::bytes() const { return count * dtype_size(dtype); }

void check_buffer(const char* what, const void* data, std::size_t count, std::int32_t dtype, ddp_device device) {
  if (!known(dtype)) invalid(std::string(what) + ": there is no element type " + std::to_string(dtype));
  if (device.kind != DDP_CPU) {
    invalid(std::string(what) + ": not in CPU memory; this version serves DDP_CPU only");
  }
  if (data == nullptr && count > 0) {
    invalid(std::string(what) + ": null data for " + std::to_string(count) + " elements");
  }
  if (count > SIZE_MAX / 2 / dtype_size(dtype)) {
    invalid(std::string(what) + ": " + std::to_string(count) + " elements do not fit in memory");
  }
}

Operation make_all_reduce(const ddp_buffer& buffer, std::int32_t op) {
  check_buffer("all_reduce", buffer.data, buffer.count, buffer.dtype, buffer.device);
  if (op < 0 || static_cast<std::size_t>(op) >= kReduceOps.size()) {
    invalid("all_reduce: there is no reduction " + std::to_string(op));
  }
  if (op == DDP_AVG && buffer.dtype != DDP_FLOAT32 && buffer.dtype != DDP_FLOAT64) {
    invalid(std::string("all_reduce: an average of ") + dtype_name(buffer.dtype) +
            " would round; DDP_AVG takes floating-point types only");
  }
  return {OperationKind::AllReduce, buffer.data, nullptr, buffer.count, buffer.dtype, op, 0, true};
}

Operation make_broadcast(const ddp_buffer& buffer, std::int32_t root, int group_size) {
  check_buffer("broadcast", buffer.data, buffer.count, buffer.dtype, buffer.device);
  if (root < 0 || root >= group_size) {
    invalid("broadcast: root " + std::to_string(root) + " is not a rank of a group of " + std::to_string(group_size));
  }
  return {OperationKind::Broadcast, buffer.data, nullptr, buffer.count, buffer.dtype, DDP_SUM, root, true};
}

Operation make_all_gather(const ddp_buffer& input, const ddp_buffer& output, int group_size) {
  check_buffer("all_gather's input", input.data, input.count, input.dtype, input.device);
  check_buffer("all_gather's output", output.data, output.count, output.dtype, output.device);
  if (input.dtype != output.dtype) {
    invalid(std::string("all_gather: input is ") + dtype_name(input.dtype) + " but output is " +
            dtype_name(output.dtype));
  }
  const std::size_t size = static_cast<std::size_t>(group_size);
  if (output.count % size != 0 || output.count / size != input.count) {
    invalid("all_gather: output has " + std::to_string(output.count) + " elements, but " + std::to_string(size) +
            " ranks give " + std::to_string(input.count) + " each");
  }
  return {OperationKind::AllGather, output.data, input.data, input.count, input.dtype, DDP_SUM, 0, true};
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

std::string describe(const Operation& operation, std::uint64_t sequence) {
  std::string text = std::string(operation_name(operation.kind)) + " #" + std::to_string(sequence);
  if (operation.kind != OperationKind::Barrier) text += " (" + human_bytes(operation.bytes()) + ")";
  return text;
}

Fingerprint fingerprint(const Operation& operation) {
  const std::int64_t kind = static_cast<std::int64_t>(operation.kind);
  const std::int64_t what = kind | std::int64_t{operation.dtype} << 8 | std::int64_t{operation.reduce_op} << 16 |
                            std::int64_t{operation.root} << 32;
  return {what, static_cast<std::int64_t>(operation.count)};
}

std::string describe(const Fingerprint& fingerprint) {
  const std::int64_t what = fingerprint[0];
  const auto kind = static_cast<OperationKind>(what & 0xff);
  std::string text = operation_name(kind);
  if (kind == OperationKind::Barrier) return text;
  text += " of " + std::to_string(fingerprint[1]) + " " + dtype_name(static_cast<std::int32_t>(what >> 8 & 0xff));
  const std::size_t reduce_op = static_cast<std::size_t>(what >> 16 & 0xff);
  if (kind == OperationKind::AllReduce && reduce_op < kReduceOps.size()) {
    text += std::string(" (") + kReduceOps[reduce_op] + ")";
  }
  if (kind == OperationKind::Broadcast) text += " from rank " + std::to_string(what >> 32);
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

void scale(void* to, const void* from, std::size_t count, std::int32_t dtype, int size) {
  if (dtype == DDP_FLOAT32) {
    scale_elements<float>(to, from, count, size);
  } else {
    scale_elements<double>(to, from, count, size);
  }
}

}  // namespace ddp::runtime
