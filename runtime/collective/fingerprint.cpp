// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/collective/fingerprint.hpp"

#include <map>

#include "runtime/base/buffer.hpp"
#include "runtime/collective/describe_operation.hpp"

namespace ddp::runtime {
namespace {

// True if the root sends, false if it receives.
bool root_gives(OperationKind kind) {
  return kind == OperationKind::Broadcast || kind == OperationKind::Scatter || kind == OperationKind::BroadcastObject ||
         kind == OperationKind::ScatterObject;
}

}  // namespace

Fingerprint fingerprint(const Operation& operation) {
  const std::int64_t kind = static_cast<std::int64_t>(operation.kind);
  const std::int64_t what = kind | std::int64_t{operation.dtype} << 8 |
                            static_cast<std::int64_t>(operation.reduce_op) << 16 | std::int64_t{operation.root} << 32;
  // all_to_all compares its counts apart (CallChecker), and objects may have any size on each rank.
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
    const auto op = collectives::to_reduce_op(static_cast<std::int32_t>(what >> 16 & 0xff));
    text += std::string(" (") + (op ? reduce_op_name(*op) : "unknown reduction") + ")";
  }
  if (has_root(kind)) text += (root_gives(kind) ? " from rank " : " to rank ") + std::to_string(what >> 32);
  return text;
}

std::string describe_calls(const std::vector<Fingerprint>& fingerprints) {
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

}  // namespace ddp::runtime
