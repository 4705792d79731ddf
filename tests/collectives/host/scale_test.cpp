// SPDX-License-Identifier: BSD-3-Clause
// Groups of many ranks, and many groups. The sizes are what takes a second or two; DDPRUN_HOST_RANKS and
// DDPRUN_HOST_PAIRS are other numbers of ranks, with which the figures are printed, too.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/backend_error.hpp"
#include "collectives/host/backend.hpp"
#include "tests/collectives/host/job.hpp"
#include "tests/collectives/host/program.hpp"
#include "tests/support/environment.hpp"

using namespace ddp::collectives;
using namespace ddp::collectives::test;

namespace {

// What a rank reports once it has used its groups.
struct Facts {
  double formed_us;            // when its groups were there
  double used_us;              // when it had used them
  std::size_t descriptors;     // that its groups have opened
  std::int64_t segment_pages;  // that all of its groups have
};

// Forks `size` ranks, each of which runs `body` and ends with 0. Returns what they report.
std::vector<Facts> run_ranks(int size, const std::function<Facts(int rank)>& body) {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(fork_rank([&, rank] {
      const Facts facts = body(rank);
      return write(ends[1], &facts, sizeof facts) == sizeof facts ? 0 : 1;
    }));
  }
  close(ends[1]);
  std::vector<Facts> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(read_from<Facts>(ends[0]));
  close(ends[0]);
  for (const pid_t rank : ranks) CHECK(reap(rank) == 0);
  return all;
}

template <typename T>
T largest(const std::vector<Facts>& all, T Facts::*field) {
  T most = all.front().*field;
  for (const Facts& facts : all) most = std::max(most, facts.*field);
  return most;
}

// Prints the figures if the number of ranks was given.
void print(const char* variable, const std::vector<Facts>& all, double begun_us, double mib) {
  if (std::getenv(variable) == nullptr) return;
  std::printf("%zu ranks: formed after %.2f s, used after %.2f s; %.1f MiB of shared memory, at most %zu descriptors\n",
              all.size(), (largest(all, &Facts::formed_us) - begun_us) / 1e6,
              (largest(all, &Facts::used_us) - begun_us) / 1e6, mib, largest(all, &Facts::descriptors));
}

Facts use_every_collective(std::uint16_t port, int rank, int size) {
  const std::size_t descriptors = open_descriptors();
  ddp_backend_group* group = join_group(port, "g", rank, size);
  Facts facts = {now_us(), 0, 0, 0};
  std::vector<GroupPlan> plans(1);
  plans[0].members.resize(static_cast<std::size_t>(size));
  std::iota(plans[0].members.begin(), plans[0].members.end(), 0U);
  for (const std::size_t count : {5U, 257U}) {  // all ranks reduce everything; each reduces a slice
    const std::string wrong = run_each_kind(plans, {static_cast<std::uint32_t>(rank), {group}}, 1, count);
    if (!wrong.empty()) throw std::runtime_error(wrong);
  }
  BackendError error;
  if (host_backend().barrier(group, 0, kTimeoutMs, &error) != DDP_BACKEND_OK) throw std::runtime_error(error.text);
  facts.used_us = now_us();
  facts.descriptors = open_descriptors() - descriptors;
  facts.segment_pages = pages_of_segments();
  return facts;
}

// Makes a group with each other rank, in the order in which a program asks for every pair, then uses all of them.
Facts use_every_pair(std::uint16_t port, int rank, int size) {
  const std::size_t descriptors = open_descriptors();
  std::vector<ddp_backend_group*> groups;
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) {
      if (rank != a && rank != b) continue;
      const std::string name = std::to_string(a) + "-" + std::to_string(b);
      groups.push_back(join_group(port, name, rank == a ? 0 : 1, 2));
    }
  }
  Facts facts = {now_us(), 0, open_descriptors() - descriptors, 0};
  BackendError error;
  for (ddp_backend_group* group : groups) {
    std::vector<float> values(16 << 10, 1.0F);
    if (host_backend().all_reduce(group, values.data(), values.size(), 0, 0, 0, kTimeoutMs, &error) != DDP_BACKEND_OK)
      throw std::runtime_error(error.text);
    if (std::count(values.begin(), values.end(), 2.0F) != 16 << 10) throw std::runtime_error("a sum is wrong");
  }
  facts.used_us = now_us();
  facts.segment_pages = pages_of_segments();
  return facts;
}

}  // namespace

TEST_CASE("host group: with many ranks, every collective computes what the model does", "[collectives][integration]") {
  const int size = ddp::testing::number_from("DDPRUN_HOST_RANKS", 64);
  const StoreProcess server;
  const double begun = now_us();
  const auto all = run_ranks(size, [&](int rank) { return use_every_collective(server.port(), rank, size); });
  CHECK(largest(all, &Facts::descriptors) < static_cast<std::size_t>(size) + 10);
  print("DDPRUN_HOST_RANKS", all, begun, static_cast<double>(all[0].segment_pages) / 256);
}

TEST_CASE("host group: a group of every pair of ranks works, and all need little memory",
          "[collectives][integration]") {
  const int size = ddp::testing::number_from("DDPRUN_HOST_PAIRS", 12);
  const StoreProcess server;
  const double begun = now_us();
  const auto all = run_ranks(size, [&](int rank) { return use_every_pair(server.port(), rank, size); });
  double pages = 0;
  for (const Facts& facts : all) pages += static_cast<double>(facts.segment_pages) / 2;  // two ranks have each segment
  CHECK(pages / 256 < 512);
  CHECK(largest(all, &Facts::descriptors) < 2 * static_cast<std::size_t>(size) + 10);
  print("DDPRUN_HOST_PAIRS", all, begun, pages / 256);
}
