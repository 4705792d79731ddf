// SPDX-License-Identifier: BSD-3-Clause
// Seeds of the simulated world around lease_core. DDPRUN_LEASE_SEEDS=FIRST:COUNT runs others.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <sstream>

#include "tests/rendezvous/etcd/lease_world.hpp"

namespace ddp::rendezvous {
namespace {

struct Seeds {
  std::uint64_t first = 0, count = 1000;
};

Seeds seeds() {
  Seeds wanted;
  if (const char* text = std::getenv("DDPRUN_LEASE_SEEDS")) {
    char colon = 0;
    std::istringstream(text) >> wanted.first >> colon >> wanted.count;
  }
  return wanted;
}

TEST_CASE("etcd lease: whatever fails, one process leads and what it told is kept", "[rendezvous][unit]") {
  const Seeds wanted = seeds();
  LeaseWorld::Counts all;
  for (std::uint64_t seed = wanted.first; seed < wanted.first + wanted.count; ++seed) {
    INFO("seed " << seed);
    LeaseWorld world(seed);
    REQUIRE_NOTHROW(world.run());
    all.leader_changes += world.counts().leader_changes;
    all.doubts += world.counts().doubts;
    all.sure_again += world.counts().sure_again;
    all.losses += world.counts().losses;
    all.inheritances += world.counts().inheritances;
    all.told += world.counts().told;
    all.late += world.counts().late;
    all.false_renewals += world.counts().false_renewals;
    all.elections += world.counts().elections;
  }
  if (std::getenv("DDPRUN_LEASE_SEEDS") != nullptr)
    WARN(all.leader_changes << " leader changes, " << all.doubts << " doubts, " << all.sure_again << " sure again, "
                            << all.losses << " losses, " << all.inheritances << " inheritances, " << all.told
                            << " told, " << all.late << " done late, " << all.elections << " elections, "
                            << all.false_renewals << " false renewals");
  const auto each = static_cast<int>(wanted.count);
  CHECK(all.leader_changes > 2 * each);
  CHECK(all.doubts > each / 2);
  CHECK(all.sure_again > each / 10);
  CHECK(all.losses > each / 10);
  CHECK(all.inheritances > each / 10);
  CHECK(all.told > 10 * each);
}

}  // namespace
}  // namespace ddp::rendezvous
