// SPDX-License-Identifier: BSD-3-Clause
// This rank's part of the shadow (ddprun --keep-memory=shadow): a copy of the tensors that the workers of a node have
// together, each a part in its own kept memory (rendezvous/kept/arena.hpp).
#pragma once

#include <cstddef>
#include <vector>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/kept/kept_core.hpp"

namespace ddp::runtime {

struct Shadow {
  // Most parts of a shadow. A process that goes on gets a descriptor of each in one message (kMostDescriptors); further
  // workers of a node have no part.
  static constexpr std::size_t kMostParts = 128;

  std::size_t part = 0, parts = 0;  // no parts: there is no shadow

  // Returns which part a rank has, and of how many; no parts without the option. Throws rendezvous::Error if
  // LOCAL_WORLD_SIZE is no number.
  static Shadow of_rank(int rank);

  // Copies this rank's part of the tensors, and its own ones, to the shadow, which then is after `step`. Until this is
  // marked there the shadow is nothing.
  void save(std::byte* memory, const rendezvous::KeptPlaces& places, std::int64_t step) const;
};

// Fills the tensors from the memory of the workers that have the parts, in the order of parts. Throws
// rendezvous::Error.
void put_together(std::byte* memory, const rendezvous::KeptPlaces& places,
                  const std::vector<rendezvous::Descriptor>& parts);

// Fills the rank's own tensors from its shadow.
void put_back_own(std::byte* memory, const rendezvous::KeptPlaces& places);

// Returns what the memories of these workers say.
std::vector<rendezvous::KeptFacts> facts_of_parts(const std::vector<rendezvous::Descriptor>& parts);

}  // namespace ddp::runtime
