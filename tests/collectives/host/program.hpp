// SPDX-License-Identifier: BSD-3-Clause
// Random programs of collectives and messages on the backend "ddp", in several groups at once, compared with a model
// that computes each result by itself. Every rank draws the same program from the seed and runs its part of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/host/host_group.hpp"

namespace ddp::collectives::test {

inline std::uint64_t mix(std::uint64_t x) {  // splitmix64's finaliser
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// The groups of a world: which ranks are in each, and the bytes of their rings.
struct GroupPlan {
  std::vector<std::uint32_t> members;
  std::uint64_t ring_bytes;
};
// Returns groups that overlap: one of all ranks, and some of fewer.
std::vector<GroupPlan> draw_groups(std::uint64_t seed, std::uint32_t ranks);

// A rank of the world, with the groups it is in; null for the others.
struct Rank {
  std::uint32_t number = 0;
  std::vector<ddp_backend_group*> groups;
};

// What the environment says: the seed of the first program ($DDPRUN_COLLECTIVE_SEED; default: drawn), and how many
// programs follow from it in each world ($DDPRUN_COLLECTIVE_PROGRAMS is for three worlds; default 150).
std::uint64_t first_seed();
std::uint64_t programs_each();

// Runs the program of this seed. Returns "" or what was wrong.
std::string run_program(const std::vector<GroupPlan>& plans, const Rank& rank, std::uint64_t seed);
// Runs a call of each kind with this count, in one of the groups. Returns as run_program() does.
std::string run_each_kind(const std::vector<GroupPlan>& plans, const Rank& rank, std::uint64_t seed, std::size_t count);

}  // namespace ddp::collectives::test
