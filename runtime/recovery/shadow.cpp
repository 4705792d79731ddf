// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/recovery/shadow.hpp"

#include <algorithm>
#include <climits>
#include <cstring>
#include <string>

#include "rendezvous/base/error.hpp"
#include "rendezvous/worker_contract.hpp"
#include "runtime/base/environment.hpp"
#include "runtime/recovery/kept_offer.hpp"

namespace ddp::runtime {

namespace contract = rendezvous::contract;
using rendezvous::KeptHeader;
using rendezvous::KeptPart;
using rendezvous::KeptPlaces;

namespace {

KeptHeader& header_at(std::byte* memory) { return *reinterpret_cast<KeptHeader*>(memory); }

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
  if (header.own_bytes > 0) std::memcpy(memory + places.own_shadow, memory + places.own, header.own_bytes);
  header.shadow.store(step, std::memory_order_release);
}

void put_together(std::byte* memory, const KeptPlaces& places, const std::vector<rendezvous::Descriptor>& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const KeptPart one(header_at(memory).tensor_bytes, i, parts.size());
    read_kept(parts[i].get(), memory + places.tensors + one.begin, one.bytes, places.shadow);
  }
}

void put_back_own(std::byte* memory, const KeptPlaces& places) {
  const std::size_t bytes = header_at(memory).own_bytes;
  if (bytes > 0) std::memcpy(memory + places.own, memory + places.own_shadow, bytes);
}

std::vector<rendezvous::KeptFacts> facts_of_parts(const std::vector<rendezvous::Descriptor>& parts) {
  std::vector<rendezvous::KeptFacts> facts;
  for (const rendezvous::Descriptor& part : parts) {
    const Mapping header(part.get(), sizeof(KeptHeader), false);
    facts.push_back(facts_of(*reinterpret_cast<const KeptHeader*>(header.at(0))));
  }
  return facts;
}

}  // namespace ddp::runtime
