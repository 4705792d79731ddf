// SPDX-License-Identifier: BSD-3-Clause
#include "tests/collectives/host/worlds.hpp"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <thread>

#include "collectives/backend_error.hpp"
#include "collectives/host/backend.hpp"
#include "tests/collectives/host/program.hpp"

namespace ddp::collectives::test {
namespace {

// Runs programs first..first+count-1 as the rank of this number. Returns "" or what was wrong.
std::string run_rank(std::uint16_t port, const std::vector<GroupPlan>& plans, const World& world, std::uint32_t number,
                     std::uint64_t first, std::uint64_t count) {
  Rank rank = {number, {}};
  for (std::size_t g = 0; g < plans.size(); ++g) {
    const auto& members = plans[g].members;
    const auto place = std::find(members.begin(), members.end(), number) - members.begin();
    const bool is_member = place < static_cast<std::ptrdiff_t>(members.size());
    rank.groups.push_back(is_member ? join_group(port, "p" + std::to_string(g), static_cast<int>(place),
                                                 static_cast<int>(members.size()), 60'000, {}, world.place_of(number))
                                    : nullptr);
  }
  std::string wrong;
  for (std::uint64_t seed = first; seed < first + count && wrong.empty(); ++seed)
    wrong = run_program(plans, rank, seed);
  for (ddp_backend_group* const group : rank.groups) {
    if (group == nullptr) continue;
    if (!wrong.empty()) host_backend().group_abort(group);
    host_backend().group_destroy(group);
  }
  return wrong;
}

// Returns results of all_reduce of one of 4 ranks, or nothing if one fails.
std::vector<std::uint16_t> sums_of_all_kinds(std::uint16_t port, const World& world, int rank) {
  ddp_backend_group* group = join_group(port, "g", rank, 4, 60'000, {}, world.place_of(static_cast<std::size_t>(rank)));
  std::mt19937 random(static_cast<unsigned>(rank));
  std::vector<std::uint16_t> all;
  for (const std::int32_t type : {0, 1, 10, 11}) {  // float, double, half, bfloat16
    for (const std::size_t count : {1U, 3000U, 200'000U}) {
      const std::size_t words = count * (type == 0 ? 2 : type == 1 ? 4 : 1);
      std::vector<std::uint16_t> values(words);
      for (std::size_t i = 0; i < words; ++i)  // small exponents: no sum is infinite or not a number
        values[i] = static_cast<std::uint16_t>(random() & 0xbfff);
      BackendError error;
      if (host_backend().all_reduce(group, values.data(), count, type, 0, 0, 60'000, &error) != DDP_BACKEND_OK)
        return {};
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  host_backend().group_destroy(group);
  return all;
}

}  // namespace

void run_in_threads(std::span<const World> worlds) {
  const std::uint64_t first = first_seed(), count = programs_each();
  for (const World& world : worlds) {
    const StoreProcess server;
    const std::vector<GroupPlan> plans = draw_groups(first, world.size());
    std::vector<std::string> wrong(world.size());
    std::vector<std::thread> ranks;
    for (std::uint32_t r = 0; r < world.size(); ++r) {
      ranks.emplace_back([&, r] {
        try {
          wrong[r] = run_rank(server.port(), plans, world, r, first, count);
        } catch (const std::exception& e) {
          wrong[r] = e.what();
        }
      });
    }
    for (std::thread& rank : ranks) rank.join();
    INFO("DDPRUN_COLLECTIVE_SEED=" << first << ", " << world.size() << " ranks");
    for (const std::string& text : wrong) {
      CAPTURE(text);
      CHECK(text.empty());
    }
  }
}

void run_in_processes(std::span<const World> worlds, const std::vector<Rings>& all_rings) {
  const std::uint64_t first = first_seed(), count = programs_each();
  for (const Rings& rings : all_rings) {
    for (const World& world : worlds) {
      const StoreProcess server;
      const std::vector<GroupPlan> plans = draw_groups(first, world.size());
      std::vector<pid_t> ranks;
      for (std::uint32_t r = 0; r < world.size(); ++r) {
        ranks.push_back(fork_rank([&, r] {
          setenv("DDP_RING_BYTES", world.node_of[r] % 2 == 0 ? rings.of_even_nodes : rings.of_odd_nodes, 1);
          const std::string wrong = run_rank(server.port(), plans, world, r, first, count);
          if (!wrong.empty()) std::fprintf(stderr, "%s\n", wrong.c_str());
          return wrong.empty() ? 0 : 1;
        }));
      }
      INFO("DDPRUN_COLLECTIVE_SEED=" << first << ", " << ranks.size() << " ranks, rings of " << rings.of_even_nodes
                                     << " and " << rings.of_odd_nodes << "; see stderr");
      for (const pid_t rank : ranks) CHECK(reap(rank) == 0);
    }
  }
}

void check_equal_bits(const std::vector<World>& worlds) {
  // Each rank's numbers round in every addition, so another order gives other bits.
  std::vector<std::vector<std::uint16_t>> results(worlds.size());
  for (std::size_t w = 0; w < worlds.size(); ++w) {
    const StoreProcess server;
    std::vector<std::thread> ranks;
    for (int r = 0; r < 4; ++r) {
      ranks.emplace_back([&, r] {
        std::vector<std::uint16_t> sums = sums_of_all_kinds(server.port(), worlds[w], r);
        if (r == 2) results[w] = std::move(sums);
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }
  CHECK(results[0].size() > 1'000'000);
  for (std::size_t w = 1; w < worlds.size(); ++w) CHECK(results[w] == results[0]);
}

}  // namespace ddp::collectives::test
