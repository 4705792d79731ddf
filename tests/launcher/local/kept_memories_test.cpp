// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/kept_memories.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

using namespace ddp::launcher;
using namespace ddp::rendezvous;
using Catch::Matchers::Contains;

namespace {

constexpr std::int64_t kBytes = 3 * kKeptPage;

KeptMemories::Handed handed(KeptMemories& memories, int local_rank, std::int64_t bytes = kBytes) {
  auto answer = memories.hand_out(local_rank, "model", bytes);
  REQUIRE(std::holds_alternative<KeptMemories::Handed>(answer));
  return std::get<KeptMemories::Handed>(answer);
}

// A worker's half: what it has mapped.
struct Worker {
  explicit Worker(const KeptMemories::Handed& handed)
      : place(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, handed.own, 0)) {
    REQUIRE(place != MAP_FAILED);
  }
  ~Worker() { munmap(place, kBytes); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  KeptHeader& header() const { return *static_cast<KeptHeader*>(place); }
  // Writes what a worker of two ranks has that is done with a step and has begun `begun`.
  void mark(std::int64_t rank, std::int64_t done, std::int64_t begun) const {
    header().version = kKeptVersion;
    header().rank = rank;
    header().world_size = 2;
    header().begun = begun;
    header().updated = header().done = done;
    header().done_records[KeptPlaces::slot(done)] = done;
    header().begun_records[KeptPlaces::slot(begun)] = begun;
  }

  void* place;
};

}  // namespace

TEST_CASE("kept memories: a worker's next process gets the same memory, and what to do with it", "[launcher][unit]") {
  KeptMemories memories(2);
  CHECK(memories.begin_round(0, 2).empty());
  const KeptMemories::Handed first = handed(memories, 0);
  CHECK(first.is_new);
  CHECK(first.go_on == GoOn::Nowhere);
  const Worker zero(first), one(handed(memories, 1));
  zero.mark(0, 4, 4);
  one.mark(1, 4, 5);
  CHECK(memories.is_updating(1));
  CHECK_FALSE(memories.is_updating(0));

  const std::vector<std::string> lines = memories.begin_round(0, 2);
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0], Contains("kept memory \"model\": every rank goes on after step 4"));
  const KeptMemories::Handed again = handed(memories, 0), torn = handed(memories, 1);
  CHECK_FALSE(again.is_new);
  CHECK(again.own == first.own);
  CHECK(again.source == -1);
  CHECK(torn.go_on == GoOn::AfterStep);
  CHECK(torn.step == 4);
  // The source is rank 0's memory, for reading.
  REQUIRE(torn.source >= 0);
  struct stat source = {}, own = {};
  REQUIRE(fstat(torn.source, &source) == 0);
  REQUIRE(fstat(again.own, &own) == 0);
  CHECK(source.st_ino == own.st_ino);
  CHECK(pwrite(torn.source, "x", 1, 0) == -1);
  CHECK(memories.bytes() == 2 * kBytes);
}

TEST_CASE("kept memories: a worker may read what was kept for it before it says how much it wants",
          "[launcher][unit]") {
  KeptMemories memories(2);
  CHECK(memories.find(0, "model") == -1);
  const Worker zero(handed(memories, 0));
  zero.mark(0, 4, 4);
  memories.begin_round(0, 2);
  const int found = memories.find(0, "model");
  REQUIRE(found >= 0);
  std::uint64_t version = 0;
  REQUIRE(pread(found, &version, sizeof version, 0) == sizeof version);
  CHECK(version == kKeptVersion);
  CHECK(pwrite(found, "x", 1, 0) == -1);
  CHECK(memories.find(1, "model") == -1);  // that worker has kept nothing
  CHECK(memories.find(0, "other") == -1);
  CHECK_FALSE(handed(memories, 0).is_new);  // reading it hands out nothing
}

TEST_CASE("kept memories: workers that were all within an update get the parts of the shadow", "[launcher][unit]") {
  KeptMemories memories(2);
  memories.begin_round(0, 2);
  {
    const Worker zero(handed(memories, 0)), one(handed(memories, 1));
    zero.mark(0, 4, 5);
    one.mark(1, 4, 5);
    for (const Worker* worker : {&zero, &one}) {
      worker->header().shadow_parts = 2;
      worker->header().shadow_part = 1 - worker->header().rank;
      worker->header().shadow = 4;
    }
  }
  const std::vector<std::string> lines = memories.begin_round(0, 2);
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0], Contains("every rank goes on after step 4") && Contains("put together from the shadow"));
  const KeptMemories::Handed zero = handed(memories, 0), one = handed(memories, 1);
  for (const KeptMemories::Handed& handed : {zero, one}) {
    CHECK(handed.go_on == GoOn::AfterStep);
    CHECK(handed.step == 4);
    CHECK(handed.source == -1);
    REQUIRE(handed.parts.size() == 2);
    CHECK(pwrite(handed.parts[0], "x", 1, 0) == -1);
    const auto file = [](int descriptor) {
      struct stat facts = {};
      REQUIRE(fstat(descriptor, &facts) == 0);
      return facts.st_ino;
    };
    CHECK(file(handed.parts[0]) == file(one.own));
    CHECK(file(handed.parts[1]) == file(zero.own));
  }
}

TEST_CASE("kept memories: workers with tensors of their own get the memory of all that have parts, in their order",
          "[launcher][unit]") {
  KeptMemories memories(2);
  memories.begin_round(0, 2);
  {
    const Worker zero(handed(memories, 0)), one(handed(memories, 1));
    zero.mark(0, 4, 4);  // it is behind
    one.mark(1, 4, 5);
    for (const Worker* worker : {&zero, &one}) {
      worker->header().shadow_parts = 2;
      worker->header().shadow_part = 1 - worker->header().rank;
      worker->header().shadow = 4;
      worker->header().is_sharded = 1;
      worker->header().own_bytes = static_cast<std::uint64_t>(worker->header().rank);  // not equal
    }
    CHECK_FALSE(memories.is_updating(1));  // it goes back anyway
  }
  CHECK_THAT(memories.begin_round(0, 2).at(0), Contains("are taken from the shadow by rank 1"));
  const KeptMemories::Handed zero = handed(memories, 0), one = handed(memories, 1);
  for (const KeptMemories::Handed& handed : {zero, one}) {
    CHECK(handed.go_on == GoOn::AfterStep);
    REQUIRE(handed.parts.size() == 2);
    struct stat part = {}, own = {};
    REQUIRE(fstat(handed.parts[0], &part) == 0);
    REQUIRE(fstat(one.own, &own) == 0);
    CHECK(part.st_ino == own.st_ino);
  }
}

TEST_CASE("kept memories: memory of another size is new, and nobody goes on from the old one", "[launcher][unit]") {
  KeptMemories memories(2);
  memories.begin_round(0, 2);
  {
    const Worker zero(handed(memories, 0)), one(handed(memories, 1));
    zero.mark(0, 4, 5);
    one.mark(1, 4, 4);
  }
  memories.begin_round(0, 2);
  const KeptMemories::Handed other = handed(memories, 1, 2 * kBytes);
  CHECK(other.is_new);
  CHECK(other.go_on == GoOn::Nowhere);
  const KeptMemories::Handed left = handed(memories, 0);  // its source is gone
  CHECK(left.go_on == GoOn::Nowhere);
  CHECK(left.source == -1);
  CHECK(memories.bytes() == 3 * kBytes);
}

TEST_CASE("kept memories: what is promised and not used yet counts, so that two cannot have the same room",
          "[launcher][unit]") {
  KeptMemories memories(2);
  memories.begin_round(0, 2);
  const auto available = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  const std::int64_t more_than_half = available * 3 / 4 / 4096 * 4096;
  const auto first = memories.hand_out(0, "model", more_than_half);
  const auto second = memories.hand_out(1, "model", more_than_half);
  // The first may be refused already, where other programs use the machine.
  REQUIRE(std::holds_alternative<std::string>(second));
  CHECK_THAT(std::get<std::string>(second), Contains("are needed, what was promised to other workers included"));
}

TEST_CASE("kept memories: the descriptors that the next round takes are not handed out", "[launcher][unit]") {
  const auto open = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  KeptMemories memories(2, 20);
  memories.begin_round(0, 2);
  const rlimit low = {static_cast<rlim_t>(open) + 22, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
  const auto first = memories.hand_out(0, "model", kBytes);
  const auto second = memories.hand_out(1, "model", kBytes);
  setrlimit(RLIMIT_NOFILE, &before);
  CHECK(std::holds_alternative<KeptMemories::Handed>(first));
  REQUIRE(std::holds_alternative<std::string>(second));
  CHECK_THAT(std::get<std::string>(second), Contains("open files in the next round, and may have "));
  CHECK(std::holds_alternative<KeptMemories::Handed>(memories.hand_out(1, "model", kBytes)));
}
