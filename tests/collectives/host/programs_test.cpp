// SPDX-License-Identifier: BSD-3-Clause
// Random programs against a model, in threads (which ThreadSanitizer watches) and in processes, which live on from one
// program to the next. DDPRUN_COLLECTIVE_PROGRAMS is how many of each (default 150), DDPRUN_COLLECTIVE_SEED the first
// seed (default: drawn). A failure prints its seed.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <mutex>
#include <thread>

#include "collectives/host/backend.hpp"
#include "tests/collectives/host/program.hpp"

using namespace ddp::collectives;
using namespace ddp::collectives::test;

namespace {

std::vector<std::shared_ptr<const Segment>> make_segments(const std::vector<GroupPlan>& plans) {
  std::vector<std::shared_ptr<const Segment>> segments;
  for (const GroupPlan& plan : plans) {
    const auto ranks = static_cast<std::uint32_t>(plan.members.size());
    segments.push_back(std::make_shared<Segment>(Segment::create(plan_segment(ranks, plan.ring_bytes, 0))));
  }
  return segments;
}

// Runs programs first..first+count-1 as one rank. Returns "" or what was wrong; then the others are freed.
std::string run_rank(const std::vector<GroupPlan>& plans, const std::vector<std::shared_ptr<const Segment>>& segments,
                     std::uint32_t number, std::uint64_t first, std::uint64_t count) {
  std::vector<std::unique_ptr<ddp_backend_group>> groups;
  Rank rank = {number, {}};
  for (std::size_t g = 0; g < plans.size(); ++g) {
    const auto& members = plans[g].members;
    const auto place = std::find(members.begin(), members.end(), number);
    if (place != members.end()) {
      groups.push_back(std::make_unique<ddp_backend_group>(
          segments[g], place - members.begin(), std::vector<std::int32_t>(members.begin(), members.end()), 0));
    }
    rank.groups.push_back(place != members.end() ? groups.back().get() : nullptr);
  }
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const std::string wrong = run_program(plans, rank, seed);
    if (wrong.empty()) continue;
    for (auto& group : groups) group->abort();
    return wrong;
  }
  return "";
}

}  // namespace

TEST_CASE("host backend: random programs in threads compute what the model does", "[collectives][unit]") {
  const std::uint64_t first = first_seed(), count = programs_each();
  for (const std::uint32_t ranks : {2U, 3U, 5U}) {
    const std::vector<GroupPlan> plans = draw_groups(first + ranks, ranks);
    const auto segments = make_segments(plans);
    std::vector<std::string> wrong(ranks);
    std::vector<std::thread> threads;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] { wrong[r] = run_rank(plans, segments, r, first, count); });
    }
    for (std::thread& thread : threads) thread.join();
    INFO("DDPRUN_COLLECTIVE_SEED=" << first);
    for (const std::string& text : wrong) {
      CAPTURE(text);
      CHECK(text.empty());
    }
  }
}

TEST_CASE("host backend: a large reduction does not write over what others still read, wherever in the ring it begins",
          "[collectives][unit]") {
  const std::vector<GroupPlan> plans = {{{0, 1}, 4096}};
  const auto segments = make_segments(plans);
  const auto reduce_everywhere = [&](std::int32_t rank) {
    ddp_backend_group group(segments[0], static_cast<std::uint32_t>(rank), {0, 1}, 0);
    const ddp_backend_table& table = host_backend();
    std::vector<std::int64_t> data(512);
    for (std::size_t moved = kLine; moved <= 2048; moved += kLine) {  // each broadcast moves the next call's place
      std::fill(data.begin(), data.end(), rank + 1);
      if (table.broadcast(&group, data.data(), moved / 8, 3, 0, 0, 60'000, nullptr) != DDP_BACKEND_OK) return moved;
      std::fill(data.begin(), data.end(), rank + 1);
      if (table.all_reduce(&group, data.data(), data.size(), 3, 0, 0, 60'000, nullptr) != DDP_BACKEND_OK) return moved;
      if (std::count(data.begin(), data.end(), 3) != 512) return moved;
    }
    return std::size_t{0};
  };
  std::size_t wrong_after = 0;
  std::thread other([&] { wrong_after = reduce_everywhere(1); });
  CHECK(reduce_everywhere(0) == 0);
  other.join();
  CHECK(wrong_after == 0);
}

namespace {

// Runs some programs with each rank in a process of its own.
void run_in_processes(const std::vector<GroupPlan>& plans, std::uint32_t ranks, std::uint64_t first) {
  const std::uint64_t count = programs_each();
  const auto segments = make_segments(plans);
  std::vector<pid_t> children;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      std::vector<std::shared_ptr<const Segment>> own;  // a mapping of its own, as a process that joined has
      for (const auto& segment : segments) {
        own.push_back(
            std::make_shared<Segment>(Segment::attach(ddp::rendezvous::Descriptor(dup(segment->descriptor())))));
      }
      const std::string wrong = run_rank(plans, own, r, first, count);
      if (!wrong.empty()) fprintf(stderr, "%s\n", wrong.c_str());
      _exit(wrong.empty() ? 0 : 1);
    }
    children.push_back(child);
  }
  INFO("DDPRUN_COLLECTIVE_SEED=" << first << ", " << ranks << " ranks; see stderr");
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
}

}  // namespace

TEST_CASE("host backend: random programs in processes compute what the model does", "[collectives][integration]") {
  const std::uint64_t first = first_seed();
  for (const std::uint32_t ranks : {2U, 4U, 8U}) run_in_processes(draw_groups(first + ranks, ranks), ranks, first);
}
