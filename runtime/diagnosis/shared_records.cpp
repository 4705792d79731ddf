// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/diagnosis/shared_records.hpp"

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

using rendezvous::OperationRecordsHeader;

template <std::size_t N>
void copy_name(std::array<char, N>& to, std::string_view name) {
  to.fill(0);
  std::copy_n(name.begin(), std::min(name.size(), N - 1), to.begin());
}

// Returns the memory, which stays mapped to the end of the process; null if there is none for this process.
OperationRecordsHeader* ask_for_memory(std::size_t kept) {
  const auto answer = ask_own_agent({.ask = "calls", .layout = rendezvous::kOperationRecordsVersion});
  if (!answer || answer->descriptors.empty()) return nullptr;
  void* const memory = mmap(nullptr, rendezvous::kOperationRecordsBytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                            answer->descriptors[0].get(), 0);
  if (memory == MAP_FAILED) throw std::runtime_error("its memory cannot be mapped");
  auto* const header = static_cast<OperationRecordsHeader*>(memory);
  for (std::size_t i = 0; i < header->operations.size(); ++i) {
    const Operation operation = {.kind = static_cast<OperationKind>(i)};
    copy_name(header->operations[i], operation_name(operation.kind));
    if (operation.is_message()) header->messages |= 1U << i;
  }
  for (std::size_t i = 0; i < header->dtypes.size(); ++i) {
    copy_name(header->dtypes[i], dtype_name(static_cast<std::int32_t>(i)));
  }
  const bool is_traced = std::getenv(rendezvous::contract::kTrace) != nullptr;
  header->records = is_traced ? rendezvous::kMostRecords : std::min(kept, rendezvous::kMostRecords);
  header->version = rendezvous::kOperationRecordsVersion;
  return header;
}

OperationRecordsHeader* memory_or_null(std::size_t kept) {
  try {
    return ask_for_memory(kept);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "libddp: ddprun does not see this process's collectives: %s\n", error.what());
    return nullptr;
  }
}

OperationRecordsHeader* memory(std::size_t kept) {
  static OperationRecordsHeader* const header = memory_or_null(kept);
  return header;
}

}  // namespace

std::optional<SharedPlace> take_shared_place(std::size_t kept) {
  OperationRecordsHeader* const header = memory(kept);
  if (header == nullptr || kept > header->records) return std::nullopt;
  for (std::size_t i = 0; i < header->groups.size(); ++i) {
    if (header->groups[i].generation != 0) continue;
    return SharedPlace{&header->groups[i], rendezvous::ring_of(header, i), header->records};
  }
  return std::nullopt;
}

void note_group_left_out() {
  if (OperationRecordsHeader* const header = memory(0)) ++header->groups_left_out;
}

void move_in(rendezvous::RecordedGroup& place, std::string_view name, GroupPlace group,
             const std::function<void()>& clear) {
  const std::uint64_t generation = place.generation;
  place.generation = generation + 1;
  clear();
  copy_name(place.name, name);
  place.rank = group.rank;
  place.size = group.size;
  place.is_gone = 0;
  place.generation = generation + 2;
}

}  // namespace ddp::runtime
