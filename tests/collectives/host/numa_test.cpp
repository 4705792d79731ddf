// SPDX-License-Identifier: BSD-3-Clause
// Groups whose ranks are on several NUMA nodes of one machine. Those are simulated: ranks say that they are there.
// DDPRUN_HOST_KILLS is how many ranks are killed (default 30); worlds.hpp has the other settings.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <numeric>
#include <string>

#include "collectives/backend_error.hpp"
#include "collectives/host/backend.hpp"
#include "collectives/host/host_group.hpp"
#include "tests/collectives/host/job.hpp"
#include "tests/collectives/host/kills.hpp"
#include "tests/collectives/host/worlds.hpp"

using namespace ddp::collectives;
using namespace ddp::collectives::test;

namespace {

using Nodes = std::vector<std::optional<int>>;

const World kNumaWorlds[] = {{{0, 0, 1, 1}, place_on_numa_node},
                             {{0, 0, 0, 1, 1}, place_on_numa_node},
                             {{1, 1, 0, 0, 0, 0}, place_on_numa_node},
                             {{0, 0, 1, 1, 2, 2, 3, 3}, place_on_numa_node}};

}  // namespace

TEST_CASE("numa: collectives go by NUMA nodes where each has several ranks, which follow each other",
          "[collectives][unit]") {
  CHECK(numa_layout(Nodes{0, 0, 1, 1}, 0));
  CHECK(numa_layout(Nodes{8, 8, 8, 0, 0}, 4)->lanes == 2);
  CHECK(numa_layout(Nodes{8, 8, 8, 0, 0}, 4)->nodes == std::vector<std::vector<std::uint32_t>>{{0, 1, 2}, {3, 4}});
  CHECK(numa_layout(Nodes{0, 0, 1, 1, 2, 2, 3, 3}, 7)->node == 3);
  CHECK_FALSE(numa_layout(Nodes{0, 0, 0, 0}, 0));
  CHECK_FALSE(numa_layout(Nodes{0, 1, 0, 1}, 0));
  CHECK_FALSE(numa_layout(Nodes{0, 0, 1}, 0));
  CHECK_FALSE(numa_layout(Nodes{0, 0, 1, {}}, 0));
  CHECK_FALSE(numa_layout(Nodes{{}, {}, {}, {}}, 0));
}

TEST_CASE("numa: a rank's NUMA node is a part of its place, not of what decides who shares memory",
          "[collectives][unit]") {
  OwnPlace place = own_place();
  for (const std::optional<int> node : {std::optional<int>(), std::optional<int>(0), std::optional<int>(12)}) {
    place.numa_node = node;
    const OwnPlace read = place_from(to_word(place));
    CHECK(read.numa_node == node);
    CHECK(may_share_memory(read, own_place()));
  }
  CHECK_FALSE(may_share_memory(place_on_node(1), place_on_node(2)));
  CHECK_FALSE(place_from("boot/1/0").numa_node);
}

TEST_CASE("numa: random programs in threads compute what the model does", "[collectives][integration]") {
  run_in_threads(kNumaWorlds);
}

TEST_CASE("numa: random programs in processes with small rings compute what the model does",
          "[collectives][integration]") {
  run_in_processes(kNumaWorlds, {{"4096", "4096"}, {"65536", "65536"}});
}

TEST_CASE("numa: a sum has the same bits on one NUMA node and on several, of any size and type",
          "[collectives][integration]") {
  check_equal_bits({{{0, 0, 0, 0}, place_on_numa_node},
                    {{0, 0, 1, 1}, place_on_numa_node},
                    {{0, 1, 0, 1}, place_on_numa_node},
                    {{0, 0, 1, 2}, place_on_numa_node}});
}

TEST_CASE("numa: whenever a rank is killed, the others name it, and nothing is left", "[collectives][integration]") {
  kill_ranks({kNumaWorlds[0], kNumaWorlds[1]});
}

namespace {

// A rank in a process of its own that may read the rings of some ranks only: an access to another one ends it.
class Blinkered {
 public:
  Blinkered(const Segment& shared, const Nodes& numa_nodes, std::uint32_t rank)
      : segment_(std::make_shared<Segment>(Segment::attach(ddp::rendezvous::Descriptor(dup(shared.descriptor()))))),
        group_(segment_, rank, job_ranks(shared.ranks()), 0, numa_layout(numa_nodes, rank)) {}

  ddp_backend_group* group() { return &group_; }
  void may_read(const std::vector<std::uint32_t>& ranks) {
    for (std::uint32_t r = 0; r < segment_->ranks(); ++r) {
      const bool may = std::count(ranks.begin(), ranks.end(), r) > 0;
      if (mprotect(segment_->ring(r), segment_->plan().ring_bytes, may ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
        throw std::runtime_error("mprotect failed");
    }
  }

 private:
  static std::vector<std::int32_t> job_ranks(std::uint32_t ranks) {
    std::vector<std::int32_t> numbers(ranks);
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
  }
  const std::shared_ptr<const Segment> segment_;
  ddp_backend_group group_;
};

}  // namespace

TEST_CASE("numa: a rank reads nothing of other NUMA nodes but what it carries", "[collectives][integration]") {
  const Nodes numa_nodes = {0, 0, 0, 1, 1};
  using Rings = std::vector<std::vector<std::uint32_t>>;  // by rank: those that it reads
  const Rings of_reductions = {{0, 1, 2, 3}, {0, 1, 2, 4}, {0, 1, 2}, {0, 3, 4}, {1, 3, 4}};
  const Rings of_all_gather = {{0, 1, 2, 3}, {0, 1, 2, 4}, {0, 1, 2}, {0, 2, 3, 4}, {1, 3, 4}};
  const Rings of_broadcast_of_2 = {{0, 1, 2}, {0, 1, 2}, {0, 1, 2}, {2, 3, 4}, {2, 3, 4}};
  constexpr std::size_t kCount = 300'000;
  const Segment segment = Segment::create(plan_segment(5, 1 << 20, 0));
  std::vector<pid_t> ranks;
  for (std::uint32_t r = 0; r < 5; ++r) {
    ranks.push_back(fork_rank([&, r] {
      Blinkered rank(segment, numa_nodes, r);
      std::vector<float> data(kCount, 1), all(5 * kCount);
      const ddp_backend_table& table = host_backend();
      BackendError error;
      rank.may_read(of_reductions[r]);
      if (table.all_reduce(rank.group(), data.data(), kCount, 0, 0, 0, 60'000, &error) != DDP_BACKEND_OK) return 1;
      if (data[kCount - 1] != 5) return 2;
      rank.may_read(of_all_gather[r]);
      if (table.all_gather(rank.group(), data.data(), all.data(), kCount, 0, 0, 60'000, &error) != DDP_BACKEND_OK)
        return 3;
      rank.may_read(of_broadcast_of_2[r]);
      if (table.broadcast(rank.group(), data.data(), kCount, 0, 2, 0, 60'000, &error) != DDP_BACKEND_OK) return 4;
      return 0;
    }));
  }
  for (const pid_t rank : ranks) CHECK(reap(rank) == 0);
}
