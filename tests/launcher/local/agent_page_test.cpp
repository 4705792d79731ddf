// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/agent_page.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <memory>
#include <thread>

using namespace ddp::launcher;
using namespace ddp::rendezvous;

namespace {

struct Pair {
  std::uint64_t a, b;
};

}  // namespace

TEST_CASE("agent page: a reader never gets half of a value", "[launcher][unit]") {
  const auto shared = std::make_unique<SharedFacts<Pair>>();
  CHECK_FALSE(shared->read());
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (std::uint64_t i = 1; !done; ++i) shared->write({i, ~i});
  });
  std::uint64_t newest = 0;
  int torn = 0;
  for (int read = 0; read < 20'000;) {
    const auto pair = shared->read();
    if (!pair) continue;
    ++read;
    if (pair->b != ~pair->a || pair->a < newest) ++torn;
    newest = pair->a;
  }
  done = true;
  writer.join();
  CHECK(torn == 0);
}

TEST_CASE("agent page: a value that its writer began and never completed is none", "[launcher][unit]") {
  alignas(SharedFacts<Pair>) unsigned char memory[sizeof(SharedFacts<Pair>)] = {};
  auto* const shared = new (memory) SharedFacts<Pair>;
  shared->write({1, 2});
  REQUIRE(shared->read());
  ++memory[0];  // the sequence number, which is odd while a write is under way
  CHECK_FALSE(shared->read());
  shared->write({3, 4});  // the next writer's is whole
  REQUIRE(shared->read());
  CHECK(shared->read()->b == 4);
}

TEST_CASE("agent page: workers read the node's facts, and cannot write them", "[launcher][unit]") {
  AgentPage page(2);
  page.show({.round = 3, .phase = NodePhase::Running, .world_size = 16});
  void* const reading = mmap(nullptr, kPageBytes, PROT_READ, MAP_SHARED, page.node_memory(), 0);
  REQUIRE(reading != MAP_FAILED);
  const auto* const node = static_cast<const NodePage*>(reading);
  CHECK(node->version == kPageVersion);
  REQUIRE(node->facts.read());
  CHECK(node->facts.read()->world_size == 16);
  munmap(reading, kPageBytes);
  CHECK(mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, page.node_memory(), 0) == MAP_FAILED);
  const char byte = 1;
  CHECK(write(page.node_memory(), &byte, 1) == -1);
  CHECK(ftruncate(page.workers_memory(), 0) == -1);
}

TEST_CASE("agent page: what a worker shows is gone when the next round begins", "[launcher][unit]") {
  AgentPage page(2);
  void* const memory = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, page.workers_memory(),
                            static_cast<off_t>(kPageBytes));
  REQUIRE(memory != MAP_FAILED);
  auto* const second = static_cast<WorkerPage*>(memory);
  CHECK_FALSE(page.worker(1));
  second->facts.write({.pid = 77, .step = 5, .step_at = 1});
  REQUIRE(page.worker(1));
  CHECK(page.worker(1)->step == 5);
  CHECK_FALSE(page.worker(0));
  page.clear_workers();
  CHECK_FALSE(page.worker(1));
  munmap(memory, kPageBytes);
}
