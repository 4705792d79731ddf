// SPDX-License-Identifier: BSD-3-Clause
// One rank of a small job, started by the group tests. argv[1] names the scenario. A check that fails prints a line
// "wrong: ..." and makes the exit code 1; other results are printed for the test to read.
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/runtime/job/contribution.hpp"
#include "tests/runtime/job/scenario.hpp"
#include "tests/support/environment.hpp"

namespace {

using ddp::test::contribution;
using ddp::test::expect;
using ddp::test::reduced;
using ddp::test::report_failure;
using ddp::test::say;

template <typename T>
void expect_same_everywhere(ddp::ProcessGroup group, std::vector<T>& values, const std::string& what) {
  std::vector<T> all(values.size() * static_cast<std::size_t>(group.size()));
  group.all_gather(values, all);
  for (int r = 0; r < group.size(); ++r) {
    const T* theirs = all.data() + values.size() * static_cast<std::size_t>(r);
    expect(values.empty() || std::memcmp(theirs, values.data(), values.size() * sizeof(T)) == 0,
           what + " differs on " + std::to_string(r));
  }
}

template <typename T>
void check_type(ddp::ProcessGroup group, const std::string& type) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{1000}}) {
    for (const ddp::ReduceOp op :
         {ddp::ReduceOp::Sum, ddp::ReduceOp::Product, ddp::ReduceOp::Min, ddp::ReduceOp::Max}) {
      std::vector<T> values = contribution<T>(group.rank(), count);
      group.all_reduce(values, op);
      const std::string what = type + " reduction " + std::to_string(static_cast<int>(op));
      for (std::size_t i = 0; i < std::min<std::size_t>(count, 10); ++i) {
        expect(values[i] == reduced<T>(op, group.size(), i), what);
      }
      expect_same_everywhere(group, values, what);
    }
    for (int root = 0; root < group.size(); ++root) {
      std::vector<T> values = contribution<T>(group.rank(), count);
      group.broadcast(values, root);
      expect(values == contribution<T>(root, count), type + " broadcast");
    }
    std::vector<T> mine = contribution<T>(group.rank(), count);
    std::vector<T> all(count * static_cast<std::size_t>(group.size()));
    group.all_gather(mine, all);
    for (int r = 0; r < group.size(); ++r) {
      const std::vector<T> theirs = contribution<T>(r, count);
      expect(std::equal(theirs.begin(), theirs.end(), all.begin() + static_cast<std::ptrdiff_t>(count) * r),
             type + " all_gather");
    }
  }
}

template <typename T>
void check_average(ddp::ProcessGroup group, const std::string& type) {
  const auto value = [](int rank, std::size_t i) {
    return T(0.1) * static_cast<T>(i + 1) + static_cast<T>(rank) / T(7);
  };
  std::vector<T> values(1000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(group.rank(), i);
  group.all_reduce(values, ddp::ReduceOp::Avg);
  expect_same_everywhere(group, values, type + " average");
  if (group.size() > 2) return;  // with more, the order of the sum depends on the element
  const T share = T(1) / static_cast<T>(group.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    T expected = value(0, i) * share;
    if (group.size() == 2) expected += value(1, i) * share;
    expect(values[i] == expected, type + " average is each contribution times 1/N, then summed");
  }
}

void collectives(ddp::Session& session) {
  const ddp::ProcessGroup group = session.world();
  check_type<float>(group, "float32");
  check_type<double>(group, "float64");
  check_type<std::int32_t>(group, "int32");
  check_type<std::int64_t>(group, "int64");
  check_type<std::uint8_t>(group, "uint8");
  check_average<float>(group, "float32");
  check_average<double>(group, "float64");
  group.barrier();
  std::vector<float> large(3'000'001, static_cast<float>(group.rank() + 1));
  group.all_reduce(large);
  const float sum = static_cast<float>(group.size() * (group.size() + 1) / 2);
  expect(large.front() == sum && large.back() == sum, "a large all_reduce");
}

void async(ddp::Session& session) {
  const ddp::ProcessGroup group = session.world();
  const float n = static_cast<float>(group.size());
  // All use the same memory, so each must see the result of the one before. A blocking call waits for all of them.
  std::vector<float> values(1000, 1.0F);
  std::vector<ddp::Work> works;
  for (int i = 0; i < 5; ++i) works.push_back(group.all_reduce_async(values));
  std::vector<float> gathered(1000 * static_cast<std::size_t>(group.size()));
  works.push_back(group.all_gather_async(values, gathered));
  group.all_reduce(values);
  float expected = 1;
  for (int i = 0; i < 5; ++i) expected *= n;
  for (const ddp::Work& work : works) expect(work.is_completed(), "operations before a blocking one have ended");
  expect(gathered == std::vector<float>(gathered.size(), expected), "asynchronous operations run in order");
  expect(values == std::vector<float>(values.size(), expected * n), "a blocking operation runs after them");
  // Waits in any order, twice, and when the work is dropped.
  ddp::Work first = group.broadcast_async(values);
  ddp::Work second = group.all_reduce_async(values);
  second.wait();
  first.wait();
  first.wait();
  expect(first.wait_for(ddp::Milliseconds(0)), "an ended operation is ended");
  const float before = values[0];
  static_cast<void>(group.all_reduce_async(values));
  expect(values[0] == before * n, "an operation whose work is dropped has ended");
  report_failure("waiting for nothing", [] { ddp::Work().wait(); });
  report_failure("waiting for the future", [&] { ddp::Work(ddp_work{group.c(), 1'000'000}).wait(); });
  group.barrier();
}

// Rank 1 does nothing after the first collective; the test kills it.
void lose_rank_1(ddp::Session& session) {
  const ddp::ProcessGroup group = session.world();
  group.barrier();
  say("ready");
  if (group.rank() == 1) {
    for (;;) pause();
  }
  std::vector<float> values(8'250'000, 1.0F);
  report_failure("all_reduce", [&] { group.all_reduce(values); });
  report_failure("barrier", [&] { group.barrier(); });
}

void stop_rank_1(ddp::Session& session) {
  const ddp::ProcessGroup group = session.world();
  group.barrier();
  say("ready");
  if (group.rank() == 1) raise(SIGSTOP);
  std::vector<float> values(10, 1.0F);
  const auto before = std::chrono::steady_clock::now();
  const auto after = [&] { return std::chrono::steady_clock::now() - before; };
  const ddp::Milliseconds timeout(300);
  const ddp::Work first = group.all_reduce_async(values, ddp::ReduceOp::Sum, timeout);
  const ddp::Work second = group.all_reduce_async(values, ddp::ReduceOp::Sum, timeout * 100);
  expect(!first.wait_for(ddp::Milliseconds(1)), "a look does not fail");
  report_failure("all_reduce", [&] { first.wait(); });
  expect(after() >= timeout, "no earlier than the deadline");
  expect(after() < std::chrono::seconds(10), "soon after the deadline");
  report_failure("the one after", [&] { second.wait(); });
  report_failure("barrier", [&] { group.barrier(); });
  expect(after() < std::chrono::seconds(10), "later operations fail at once");
}

void mismatch(ddp::Session& session) {
  const ddp::ProcessGroup group = session.world();
  std::vector<float> values(1000, 1.0F);
  if (group.rank() == 0) {
    report_failure("all_reduce", [&] { group.all_reduce(values); });
  } else {
    report_failure("all_reduce", [&] { group.all_reduce({values.data(), 500}); });
  }
  report_failure("barrier", [&] { group.barrier(); });
  expect(values.front() == 1.0F, "a refused operation leaves its buffer alone");
}

void uneven_mismatch(ddp::Session& session) {
  const ddp::ProcessGroup group = session.world();
  std::vector<float> input(6), output(group.rank() == 2 ? 5 : 6);
  const std::vector<std::size_t> even = {2, 2, 2};
  const std::vector<std::size_t> less = {1, 2, 2};
  report_failure("all_to_all", [&] { group.all_to_all(input, even, output, group.rank() == 2 ? less : even); });
}

void invalid(ddp::Session& session) {
  const ddp::ProcessGroup group = session.world();
  std::vector<float> values(4);
  std::vector<std::int32_t> integers(4);
  float* null = nullptr;
  report_failure("null", [&] { group.all_reduce({null, 4}); });
  report_failure("average of integers", [&] { group.all_reduce(integers, ddp::ReduceOp::Avg); });
  report_failure("gpu", [&] { group.all_reduce({values.data(), 4, ddp::DType::Float32, {ddp::DeviceKind::Cuda, 0}}); });
  report_failure("type", [&] { group.all_reduce({values.data(), 4, static_cast<ddp::DType>(12)}); });
  report_failure("root", [&] { group.broadcast(values, group.size()); });
  report_failure("bits", [&] { group.all_reduce(values, ddp::ReduceOp::BitAnd); });
  report_failure("reduction", [&] { group.reduce(values, static_cast<ddp::ReduceOp>(9)); });
  std::vector<float> others(4);
  const std::vector<std::size_t> too_many(static_cast<std::size_t>(group.size()), 5);
  report_failure("counts", [&] { group.all_to_all(values, too_many, others, too_many); });
  report_failure("gather", [&] { group.all_gather(values, {values.data(), 3}); });
  group.all_reduce(values);  // the group still works
  group.barrier();
}

void leave_early(ddp::Session& session) {
  if (session.rank() == 0) return;
  report_failure("barrier", [&] { session.world().barrier(); });
}

// Makes a second session next to the first, with its own keys and its own group.
void join_twice(ddp::Session& session) {
  struct sigaction now = {};
  sigaction(SIGPIPE, nullptr, &now);
  const bool needs_no_handler = session.world_size() == 1 || session.world().backend() == "ddp";
  expect(needs_no_handler == (now.sa_handler == SIG_DFL), "SIGPIPE has a handler only where a backend needs it");
  const int status = std::system("kill -PIPE $$");
  expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE, "SIGPIPE is the default for commands");
  const ddp::Session second = ddp::init_process_group();
  std::vector<int> ones = {1};
  session.world().all_reduce(ones);
  second.world().all_reduce(ones);
  expect(ones[0] == session.world_size() * session.world_size(), "both sessions work");
  session.store().set("k", "the first session's");
  session.world().barrier();
  expect(!second.store().check({"k"}), "each session's store is its own");
}

// Every rank exchanges its number with every other. A key with the name of one of libddp's own does not collide.
void share_a_store(ddp::Session& session) {
  const ddp::Store store = session.store();
  store.set("world_size", "not libddp's");
  store.set("rank " + std::to_string(session.rank()), std::to_string(session.rank()));
  std::vector<std::string> keys;
  for (int r = 0; r < session.world_size(); ++r) keys.push_back("rank " + std::to_string(r));
  const std::vector<std::string> values = store.multi_get(keys);
  for (int r = 0; r < session.world_size(); ++r) {
    expect(values[static_cast<std::size_t>(r)] == std::to_string(r), "what rank " + std::to_string(r) + " said");
  }
  store.barrier("all", session.world_size());
  expect(store.add("count", 1) <= session.world_size(), "a counter of this session's");
  session.world().barrier();
  expect(store.get("count") == std::to_string(session.world_size()), "every rank counted once");
}

void say_who(ddp::Session& session) {
  say("rank " + std::to_string(session.rank()) + " of " + std::to_string(session.world_size()) + ", local rank " +
      std::to_string(session.local_rank()) + " of " + std::to_string(session.local_world_size()) + ", restart " +
      std::to_string(session.restart_count()));
  session.world().barrier();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string scenario = argc > 1 ? argv[1] : "";
  ddp::test::Scenarios scenarios = {
      {"collectives", collectives},
      {"async", async},
      {"lose rank 1", lose_rank_1},
      {"stop rank 1", stop_rank_1},
      {"mismatch", mismatch},
      {"uneven mismatch", uneven_mismatch},
      {"invalid", invalid},
      {"leave early", leave_early},
      {"join twice", join_twice},
      {"store", share_a_store},
      {"who", say_who},
  };
  scenarios.merge(ddp::test::diagnosis_scenarios());
  scenarios.merge(ddp::test::message_scenarios());
  scenarios.merge(ddp::test::group_scenarios());
  scenarios.merge(ddp::test::thread_scenarios());
  const std::string fault = "fault ";
  if (scenario.rfind(fault, 0) == 0) {
    scenarios[scenario] = [&](ddp::Session& s) { ddp::test::fault(s, scenario.substr(fault.size())); };
  }
  ddp::test::Programs programs = ddp::test::device_programs();
  programs.merge(ddp::test::device_model_programs());
  programs.merge(ddp::test::device_graph_programs());
  programs.merge(ddp::test::device_hook_programs());
  const auto program = programs.find(scenario);
  const auto chosen = scenarios.find(scenario);
  if (chosen == scenarios.end() && program == programs.end()) {
    say("no scenario \"" + scenario + "\"");
    return 2;
  }
  try {
    if (program != programs.end()) {
      program->second();
      return ddp::test::all_right ? 0 : 1;
    }
    ddp::InitOptions options;
    if (argc > 2) options.init_timeout = ddp::Milliseconds(std::stoi(argv[2]));
    const char* const init_timeout = std::getenv("TEST_INIT_TIMEOUT");
    if (init_timeout != nullptr) options.init_timeout = ddp::Milliseconds(std::stoi(init_timeout));
    options.backend = ddp::testing::variable("TEST_BACKEND", options.backend);
    if (argc > 3) options.backend = argv[3];
    ddp::Session session = ddp::init_process_group(options);
    chosen->second(session);
  } catch (const ddp::Error& e) {
    say("error: " + std::to_string(static_cast<int>(e.status())) + " " + e.what());
    return 1;
  }
  return ddp::test::all_right ? 0 : 1;
}
