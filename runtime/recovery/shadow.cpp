// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/recovery/shadow.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string>

#include "rendezvous/base/error.hpp"
#include "rendezvous/worker_contract.hpp"
#include "runtime/base/environment.hpp"

namespace ddp::runtime {

namespace contract = rendezvous::contract;
using rendezvous::KeptHeader;
using rendezvous::KeptPart;
using rendezvous::KeptPlaces;

namespace {

KeptHeader& header_at(std::byte* memory) { return *reinterpret_cast<KeptHeader*>(memory); }

void read_all(int file, std::byte* to, std::size_t bytes, std::size_t offset) {
  while (bytes > 0) {
    const ssize_t got = pread(file, to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      throw rendezvous::Error(rendezvous::ErrorCode::System,
                              std::string("kept memory: reading a part of the shadow: ") +
                                  (got < 0 ? std::strerror(errno) : "it is shorter than its worker said"));
    }
    to += got;
    offset += static_cast<std::size_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
}

}  // namespace

Shadow Shadow::of_rank(int rank) {
  const auto workers = setting(process_environment, contract::kLocalWorldSize);
  if (process_environment(contract::kKeptMemory) != contract::kKeptShadow || !workers) return {};
  // The ranks of a node follow each other, so that these numbers are all different, on whichever node.
  const auto count = static_cast<std::size_t>(number(*workers, 1, INT_MAX));
  return {static_cast<std::size_t>(rank) % count, std::min(count, kMostParts)};
}

void Shadow::save(std::byte* memory, const KeptPlaces& places, std::int64_t step) const {
  KeptHeader& header = header_at(memory);
  const KeptPart own(header.tensor_bytes, part, parts);
  header.shadow.store(rendezvous::kNoStep, std::memory_order_seq_cst);
  if (own.bytes > 0) std::memcpy(memory + places.shadow, memory + places.tensors + own.begin, own.bytes);
  header.shadow.store(step, std::memory_order_release);
}

void put_together(std::byte* memory, const KeptPlaces& places, const std::vector<rendezvous::Descriptor>& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const KeptPart one(header_at(memory).tensor_bytes, i, parts.size());
    read_all(parts[i].get(), memory + places.tensors + one.begin, one.bytes, places.shadow);
  }
}

}  // namespace ddp::runtime
