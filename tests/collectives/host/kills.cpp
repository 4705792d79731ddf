// SPDX-License-Identifier: BSD-3-Clause
#include "tests/collectives/host/kills.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>

#include "collectives/backend_error.hpp"
#include "collectives/host/backend.hpp"
#include "tests/support/environment.hpp"

namespace ddp::collectives::test {
namespace {

using Clock = std::chrono::steady_clock;

long own_memory_kib() {
  long pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

// Calls collectives of all sizes until one fails, and reports that.
int work_until_failure(ddp_backend_group* group, int size, int report_to) {
  const ddp_backend_table& table = host_backend();
  const char ready = 'r';
  if (write(report_to, &ready, 1) != 1) return 2;
  std::vector<float> small(3), middle(20'000), large(400'000);
  std::vector<float> all(large.size() * static_cast<std::size_t>(size));
  BackendError error;
  ddp_backend_status status = DDP_BACKEND_OK;
  for (int i = 0; status == DDP_BACKEND_OK; ++i) {
    std::vector<float>& values = i % 7 < 4 ? small : i % 7 < 6 ? middle : large;
    if (i % 3 == 0) status = table.all_gather(group, values.data(), all.data(), values.size(), 0, 0, 60'000, &error);
    if (i % 3 == 1) status = table.all_reduce(group, values.data(), values.size(), 0, 0, 0, 60'000, &error);
    if (i % 3 == 2) status = table.broadcast(group, values.data(), values.size(), 0, i % size, 0, 60'000, &error);
  }
  report(report_to, group, status, error.text);
  return 0;
}

// Returns "its connection to rank R broke: its process ended".
std::string text_for(std::size_t rank) {
  return "its connection to rank " + std::to_string(rank) + " broke: its process ended";
}

// Kills one rank of a group, or two at once, and returns how many milliseconds each other one took to fail.
std::vector<double> kill_some(std::uint16_t port, const std::string& name, const World& world, std::mt19937& random) {
  const auto& node_of = world.node_of;
  const int size = static_cast<int>(node_of.size());
  const bool is_one_node =
      world.place_on == place_on_numa_node || std::count(node_of.begin(), node_of.end(), node_of[0]) == size;
  const std::size_t victim = random() % node_of.size();
  const bool kills_two = size >= 3 && random() % 4 == 0;
  const std::size_t second = kills_two ? (victim + 1 + random() % (node_of.size() - 1)) % node_of.size() : victim;
  const int mib = testing::number_from("DDPRUN_HOST_KILL_MIB", 0);
  std::vector<std::pair<pid_t, int>> ranks;
  for (int r = 0; r < size; ++r) {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    ranks.emplace_back(fork_rank([&, r] {
                         const std::vector<char> memory = memory_of(mib);
                         const OwnPlace place = world.place_of(static_cast<std::size_t>(r));
                         ddp_backend_group* group = join_group(port, name, r, size, 60'000, {}, place);
                         return work_until_failure(group, size, ends[1]);
                       }),
                       ends[0]);
    close(ends[1]);
  }
  for (const auto& [pid, pipe] : ranks) CHECK(read_from<char>(pipe) == 'r');
  // At any instruction: after a random number of microseconds of work.
  const auto until = Clock::now() + std::chrono::microseconds(random() % 3000);
  while (Clock::now() < until) sched_yield();
  const double killed = now_us();
  kill(ranks[victim].first, SIGKILL);
  if (kills_two) kill(ranks[second].first, SIGKILL);
  std::vector<double> times;
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto& [pid, pipe] = ranks[r];
    if (r == victim || r == second) {
      const int code = reap(pid);
      // The second one may already have learnt of the first one's death, and ended by itself.
      CHECK((code == -1 - SIGKILL || (r != victim && code == 0)));
    } else {
      const auto report = read_from<Report>(pipe);
      INFO(name << ", rank " << r << " of " << size << ", killed " << victim << " and " << second << ": "
                << report.text);
      CHECK(report.status == DDP_BACKEND_PEER_LOST);
      texts.emplace_back(report.text);
      CHECK((texts.back() == text_for(victim) || texts.back() == text_for(second)));
      // Ranks of several nodes may learn first of different ones of two.
      if (is_one_node) CHECK(texts.back() == texts.front());
      times.push_back((report.at_us - killed) / 1000);
      CHECK(reap(pid) == 0);
    }
    close(pipe);
  }
  return times;
}

}  // namespace

void kill_ranks(std::vector<World> worlds) {
  const int ranks = testing::number_from("DDPRUN_HOST_KILL_RANKS", 0);
  if (ranks > 0) std::erase_if(worlds, [&](const auto& world) { return static_cast<int>(world.size()) != ranks; });
  REQUIRE(!worlds.empty());
  const int kills = testing::number_from("DDPRUN_HOST_KILLS", 30);
  std::mt19937 random{std::random_device()()};
  const StoreProcess server;
  const std::size_t descriptors = open_descriptors();
  const long memory = own_memory_kib();
  std::vector<double> times;
  for (int i = 0; i < kills; ++i) {
    const World& world = worlds[random() % worlds.size()];
    for (const double time : kill_some(server.port(), "k" + std::to_string(i), world, random)) times.push_back(time);
  }
  std::sort(times.begin(), times.end());
  CHECK(times.back() < 10'000);  // long before any deadline, on any machine
  if (std::getenv("DDPRUN_HOST_KILLS") != nullptr) {
    std::printf("from the kill to the error, %zu survivors: median %.2f ms, 99 %% %.2f ms, worst %.2f ms\n",
                times.size(), times[times.size() / 2], times[times.size() * 99 / 100], times.back());
    std::printf("memory of this process: %ld KiB before, %ld KiB after\n", memory, own_memory_kib());
  }
  CHECK(own_memory_kib() < memory + 20'000 + 20 * kills);  // the store keeps some keys of each group
  CHECK(open_descriptors() == descriptors);
}

}  // namespace ddp::collectives::test
