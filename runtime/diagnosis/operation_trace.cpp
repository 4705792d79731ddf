// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/diagnosis/operation_trace.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>

#include "rendezvous/worker_contract.hpp"
#include "runtime/base/buffer.hpp"
#include "runtime/base/own_agent.hpp"
#include "runtime/collective/describe_operation.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::TraceHeader;

template <std::size_t N>
void copy_name(std::array<char, N>& to, std::string_view name) {
  to.fill(0);
  std::copy_n(name.begin(), std::min(name.size(), N - 1), to.begin());
}

// Returns the memory, which stays mapped to the end of the process; null without an agent that traces.
TraceHeader* ask_for_memory() {
  if (std::getenv(rendezvous::contract::kTrace) == nullptr) return nullptr;
  const auto answer = ask_own_agent("trace");
  if (!answer) return nullptr;
  if (answer->descriptors.size() != 1) throw std::runtime_error("the agent answers " + answer->text);
  void* const memory =
      mmap(nullptr, rendezvous::kTraceBytes, PROT_READ | PROT_WRITE, MAP_SHARED, answer->descriptors[0].get(), 0);
  if (memory == MAP_FAILED) throw std::runtime_error("its memory cannot be mapped");
  auto* const header = static_cast<TraceHeader*>(memory);
  if (header->version != rendezvous::kTraceVersion) {
    throw std::runtime_error("its memory has layout " + std::to_string(header->version) + ", and this libddp knows " +
                             std::to_string(rendezvous::kTraceVersion) + " (use ddprun and libddp of one release)");
  }
  for (std::size_t i = 0; i < header->operations.size(); ++i) {
    copy_name(header->operations[i], operation_name(static_cast<OperationKind>(i)));
  }
  for (std::size_t i = 0; i < header->dtypes.size(); ++i) {
    copy_name(header->dtypes[i], dtype_name(static_cast<std::int32_t>(i)));
  }
  return header;
}

TraceHeader* memory_or_null() {
  try {
    return ask_for_memory();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "libddp: this process's collectives are not in the trace: %s\n", error.what());
    return nullptr;
  }
}

TraceHeader* memory() {
  static TraceHeader* const header = memory_or_null();
  return header;
}

}  // namespace

std::optional<TracedPlace> take_traced_place() {
  TraceHeader* const header = memory();
  if (header == nullptr) return std::nullopt;
  for (std::size_t i = 0; i < header->groups.size(); ++i) {
    if (header->groups[i].generation != 0) continue;
    auto* const rings = reinterpret_cast<std::byte*>(header) + rendezvous::kTraceRingsAt;
    return TracedPlace{&header->groups[i],
                       reinterpret_cast<rendezvous::OperationRecord*>(rings + i * rendezvous::kTraceRingBytes)};
  }
  return std::nullopt;
}

void note_untraced_group() {
  if (TraceHeader* const header = memory()) ++header->groups_left_out;
}

void move_in(rendezvous::TracedGroup& place, std::string_view name, GroupPlace group,
             const std::function<void()>& clear) {
  const std::uint64_t generation = place.generation;
  place.generation = generation + 1;
  clear();
  copy_name(place.name, name);
  place.rank = group.rank;
  place.size = group.size;
  place.generation = generation + 2;
}

}  // namespace ddp::runtime
