// SPDX-License-Identifier: BSD-3-Clause
// Ranks that disagree about a collective: whatever they disagree about, all of them get an error in the collective or
// in the barrier after it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "collectives/backend_error.hpp"
#include "collectives/host/backend.hpp"
#include "tests/collectives/host/job.hpp"

using namespace ddp::collectives;
using namespace ddp::collectives::test;

namespace {

constexpr std::int64_t kPatienceMs = 5'000;
constexpr std::int32_t kFloat32 = 0, kInt32 = 2, kSum = 0, kMax = 4;

struct Memory {
  std::vector<float> input = std::vector<float>(200, 1), output = std::vector<float>(200, 2);
};

struct Call {
  std::string name;
  std::function<ddp_backend_status(ddp_backend_group*, Memory&, ddp_backend_error*)> run;
};

// Adds calls of a collective that differ in one argument each.
void add(std::vector<Call>& calls, const std::string& name,
         const std::function<ddp_backend_status(ddp_backend_group*, Memory&, std::size_t count, std::int32_t dtype,
                                                std::int32_t op, std::int32_t root, ddp_backend_error*)>& run,
         bool has_op, bool has_root) {
  const auto variant = [&](const char* what, std::size_t count, std::int32_t dtype, std::int32_t op,
                           std::int32_t root) {
    calls.push_back({name + what, [=](ddp_backend_group* group, Memory& memory, ddp_backend_error* error) {
                       return run(group, memory, count, dtype, op, root, error);
                     }});
  };
  variant("", 10, kFloat32, kSum, 0);
  variant(" of another size", 20, kFloat32, kSum, 0);
  variant(" of another type", 10, kInt32, kSum, 0);
  if (has_op) variant(" with another reduction", 10, kFloat32, kMax, 0);
  if (has_root) variant(" with another root", 10, kFloat32, kSum, 1);
}

std::vector<Call> collectives() {
  const ddp_backend_table& backend = host_backend();
  std::vector<Call> calls;
  add(
      calls, "all_reduce",
      [&](auto* g, Memory& m, auto n, auto type, auto op, auto, auto* e) {
        return backend.all_reduce(g, m.output.data(), n, type, op, 0, kPatienceMs, e);
      },
      true, false);
  add(
      calls, "reduce",
      [&](auto* g, Memory& m, auto n, auto type, auto op, auto root, auto* e) {
        return backend.reduce(g, m.output.data(), n, type, op, root, 0, kPatienceMs, e);
      },
      true, true);
  add(
      calls, "reduce_scatter",
      [&](auto* g, Memory& m, auto n, auto type, auto op, auto, auto* e) {
        return backend.reduce_scatter(g, m.input.data(), m.output.data(), n, type, op, 0, kPatienceMs, e);
      },
      true, false);
  add(
      calls, "broadcast",
      [&](auto* g, Memory& m, auto n, auto type, auto, auto root, auto* e) {
        return backend.broadcast(g, m.output.data(), n, type, root, 0, kPatienceMs, e);
      },
      false, true);
  add(
      calls, "all_gather",
      [&](auto* g, Memory& m, auto n, auto type, auto, auto, auto* e) {
        return backend.all_gather(g, m.input.data(), m.output.data(), n, type, 0, kPatienceMs, e);
      },
      false, false);
  add(
      calls, "all_gatherv",
      [&](auto* g, Memory& m, auto n, auto type, auto, auto, auto* e) {
        const std::vector<std::size_t> counts = {n, 7, 7};
        return backend.all_gatherv(g, m.input.data(), m.output.data(), counts.data(), type, 0, kPatienceMs, e);
      },
      false, false);
  add(
      calls, "gather",
      [&](auto* g, Memory& m, auto n, auto type, auto, auto root, auto* e) {
        return backend.gather(g, m.input.data(), m.output.data(), n, type, root, 0, kPatienceMs, e);
      },
      false, true);
  add(
      calls, "scatter",
      [&](auto* g, Memory& m, auto n, auto type, auto, auto root, auto* e) {
        return backend.scatter(g, m.input.data(), m.output.data(), n, type, root, 0, kPatienceMs, e);
      },
      false, true);
  add(
      calls, "all_to_all",
      [&](auto* g, Memory& m, auto n, auto type, auto, auto, auto* e) {
        const std::vector<std::size_t> counts = {n, n, n};
        return backend.all_to_all(g, m.input.data(), counts.data(), m.output.data(), counts.data(), type, 0,
                                  kPatienceMs, e);
      },
      false, false);
  calls.push_back({"barrier", [&](auto* g, Memory&, auto* e) { return backend.barrier(g, 0, kPatienceMs, e); }});
  return calls;
}

// Makes a call, then a barrier. Returns what is wrong; empty if the status of one of them is an error, or if both
// succeed and `agrees`.
std::string disagree(ddp_backend_group* group, const Call& call, bool agrees) {
  BackendError error;
  Memory memory;
  ddp_backend_status status = call.run(group, memory, &error);
  if (status == DDP_BACKEND_OK) status = host_backend().barrier(group, 0, kPatienceMs, &error);
  const std::string text = error.text;
  if (status != DDP_BACKEND_OK) host_backend().group_abort(group);
  host_backend().group_destroy(group);
  if (agrees) return status == DDP_BACKEND_OK ? "" : text;
  if (status == DDP_BACKEND_PEER_LOST) return "";  // another rank has noticed first
  return status == DDP_BACKEND_ERROR && text.starts_with("ranks disagree") ? "" : "no error: " + text;
}

using Includes = bool (*)(const Call& first, const Call& second);

// The rank `other` makes the second call of each pair, all others the first.
void check_pairs(const World& world, int other, Includes includes) {
  const StoreProcess server;
  const int size = static_cast<int>(world.size());
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(fork_rank([&, rank] {
      const std::vector<Call> calls = collectives();
      int wrong = 0;
      for (std::size_t i = 0; i < calls.size(); ++i) {
        for (std::size_t j = i; j < calls.size(); ++j) {
          if (!includes(calls[i], calls[j])) continue;
          ddp_backend_group* group = join_group(server.port(), std::to_string(i) + "," + std::to_string(j), rank, size,
                                                kPatienceMs, {}, world.place_of(static_cast<std::size_t>(rank)));
          const std::string why = disagree(group, calls[rank == other ? j : i], i == j);
          if (why.empty()) continue;
          std::fprintf(stderr, "rank %d, %s and %s: %s\n", rank, calls[i].name.c_str(), calls[j].name.c_str(),
                       why.c_str());
          ++wrong;
        }
      }
      return wrong == 0 ? 0 : 1;
    }));
  }
  for (const pid_t rank : ranks) CHECK(reap(rank) == 0);
}

bool every_pair(const Call&, const Call&) { return true; }

// A rank that sends to a rank of another node which never waits for it has no link to it, and waits until the deadline.
bool is_noticed_between_nodes(const Call& first, const Call& second) {
  const std::string kind = first.name.substr(0, first.name.find(' '));
  const bool same_kind = second.name.starts_with(kind + ' ') || second.name == kind;
  return same_kind && !first.name.ends_with("another root") && !second.name.ends_with("another root");
}

}  // namespace

TEST_CASE("disagreements: ranks that share memory get an error by the next barrier, whatever two of them call",
          "[collectives][integration]") {
  check_pairs({{0, 0}}, 1, every_pair);
}

TEST_CASE("disagreements: ranks of several nodes get an error by the next barrier, whatever two of them call",
          "[collectives][integration]") {
  check_pairs(GENERATE(World{{0, 0, 1}}, World{{0, 1, 2}}), GENERATE(0, 1, 2), is_noticed_between_nodes);
}

TEST_CASE("disagreements: an all_to_all of counts that contradict each other gives an error and no stale bytes",
          "[collectives][integration]") {
  using Counts = std::vector<std::size_t>;
  const World world = GENERATE(World{{0, 0}}, World{{0, 1}});
  // Rank 0 sends 3 elements to rank 1, which expects fewer or more, or as many as take several steps.
  const std::size_t expected = GENERATE(std::size_t{0}, std::size_t{2}, std::size_t{4}, std::size_t{200'000});
  const StoreProcess server;
  const auto rank = [&](int number, const Counts& to, const Counts& from) {
    return fork_rank([&, number] {
      ddp_backend_group* group =
          join_group(server.port(), "g", number, 2, kPatienceMs, {}, world.place_of(static_cast<std::size_t>(number)));
      const std::vector<float> input(200'010, 1);
      std::vector<float> output(200'010, -1);
      BackendError error;
      auto status = host_backend().all_to_all(group, input.data(), to.data(), output.data(), from.data(), kFloat32, 0,
                                              kPatienceMs, &error);
      const auto end = static_cast<std::ptrdiff_t>(from[0] + from[1]);
      if (std::any_of(output.begin() + end, output.end(), [](float beyond) { return beyond != -1; })) return 2;
      if (status == DDP_BACKEND_OK) status = host_backend().barrier(group, 0, kPatienceMs, &error);
      host_backend().group_abort(group);
      host_backend().group_destroy(group);
      return status == DDP_BACKEND_ERROR || status == DDP_BACKEND_PEER_LOST ? 0 : 1;
    });
  };
  const pid_t first = rank(0, {1, 3}, {1, 5}), second = rank(1, {5, 1}, {expected, 1});
  CHECK(reap(first) == 0);
  CHECK(reap(second) == 0);
}

TEST_CASE("disagreements: a root that only broadcasts gets an error once its ring is full",
          "[collectives][integration]") {
  const StoreProcess server;
  const auto rank = [&](int number, std::size_t count) {
    return fork_rank([&, number, count] {
      ddp_backend_group* group = join_group(server.port(), "g", number, 2);
      std::vector<float> values(2);
      BackendError error;
      auto status = DDP_BACKEND_OK;
      for (int i = 0; i < 100'000 && status == DDP_BACKEND_OK; ++i)
        status = host_backend().broadcast(group, values.data(), count, kFloat32, 0, 0, kPatienceMs, &error);
      host_backend().group_abort(group);
      host_backend().group_destroy(group);
      return status == DDP_BACKEND_ERROR || status == DDP_BACKEND_PEER_LOST ? 0 : 1;
    });
  };
  const pid_t root = rank(0, 1), other = rank(1, 2);
  CHECK(reap(root) == 0);
  CHECK(reap(other) == 0);
}
