// SPDX-License-Identifier: BSD-3-Clause
// A rank is killed before, in and after every operation. The others get an error that names it within a second, and
// continue in a group without it. DDPRUN_FAULT_FULL=1 runs all combinations: 2 to 4 ranks, each of them the victim
// (scripts/stress/faults).
#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "rendezvous/store/server.hpp"
#include "rendezvous/store/tcp_store.hpp"
#include "tests/runtime/job/job.hpp"
#include "tests/runtime/job/run_job.hpp"
#include "tests/support/process.hpp"

using Catch::Matchers::Contains;
using ddp::rendezvous::StoreServer;
using ddp::rendezvous::TcpStore;
using ddp::test::Ended;
using ddp::test::free_port;
using ddp::test::Job;
using ddp::test::no_child_left;
using ddp::test::tell_failure;

namespace {

const std::vector<std::string> kOperations = {"all_reduce", "reduce",         "broadcast",  "all_gather", "gather",
                                              "scatter",    "reduce_scatter", "all_to_all", "barrier",    "recv"};

struct Fault {
  std::string operation;
  std::string when;  // before, in (the others wait for the victim), inside (the victim is in the operation too), after
  int size = 3;
  int victim = 1;
  bool launcher = true;  // hosts the store and reports the death
};

std::string describe(const Fault& f) {
  return f.operation + ", rank " + std::to_string(f.victim) + " of " + std::to_string(f.size) + " dies " + f.when +
         (f.launcher ? "" : ", no launcher");
}

bool is_full() { return std::getenv("DDPRUN_FAULT_FULL") != nullptr; }
// A second on an idle machine; on any other long before any deadline.
double allowed_ms() { return is_full() ? 1000 : 30'000; }

// Returns the microseconds since boot that the worker printed after `word`.
double time_after(const std::string& output, const std::string& word) {
  const std::size_t at = output.find(word + " at ");
  return at != std::string::npos ? std::stod(output.substr(at + word.size() + 4)) : -1;
}

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<std::size_t> survivors_of(const Fault& fault) {
  std::vector<std::size_t> ranks;
  for (int rank = 0; rank < fault.size; ++rank) {
    if (rank != fault.victim) ranks.push_back(static_cast<std::size_t>(rank));
  }
  return ranks;
}

// Kills the victim as the fault says. Returns the time of the kill.
double kill_victim(Job& job, const Fault& fault) {
  const auto victim = static_cast<std::size_t>(fault.victim);
  if (fault.when != "inside") {
    job.wait_for_line(victim, "ready");
    for (const std::size_t rank : survivors_of(fault)) {
      job.wait_for_line(rank, "ready");
      job.wait_until_asleep(rank);  // in the operation, or waiting to begin it
    }
  }
  const double killed = now_us();
  if (fault.when != "inside") job.kill(victim, SIGKILL);
  const Ended ended = job.finish(victim);
  INFO("the victim said: " << ended.output);
  CHECK(ended.signal == SIGKILL);
  return fault.when == "inside" ? time_after(ended.output, "dies") : killed;
}

// Checks that a survivor printed what it should learn. Returns how long it took to learn it.
double check_survivor(const Ended& ended, const Fault& fault, double killed) {
  INFO(describe(fault) << "; a survivor said: " << ended.output);
  CHECK(ended.code == 0);
  const std::string victim = "rank " + std::to_string(fault.victim);
  if (fault.launcher) {
    CHECK_THAT(ended.output, Contains(": 3 world: ") && Contains(victim + " on node b was killed by SIGKILL\n"));
  } else {
    CHECK_THAT(ended.output, Contains(": 3 world: ") && Contains("another rank died or left (its connection") &&
                                 Contains(victim + " broke"));
  }
  CHECK_THAT(ended.output, Contains("\nrecovered\n"));
  const double since = std::max(killed, fault.when == "before" ? time_after(ended.output, "began") : 0);
  const double ms = (time_after(ended.output, "failed") - since) / 1000;
  CHECK(ms < allowed_ms());
  return ms;
}

// Appends to `times` how long each survivor took to learn of the death.
void run_fault(const Fault& fault, std::vector<double>& times) {
  std::unique_ptr<StoreServer> store;
  if (fault.launcher) store = std::make_unique<StoreServer>(std::vector<std::string>{"127.0.0.1"}, 0);
  const std::uint16_t port = store ? store->port() : free_port();
  {
    const std::string scenario = "fault " + fault.operation + "," + fault.when + "," + std::to_string(fault.victim);
    Job job(fault.size, scenario, port, fault.launcher);
    const double killed = kill_victim(job, fault);
    if (store) {
      const std::string victim = std::to_string(fault.victim);
      tell_failure(*store, victim, "rank " + victim + " on node b was killed by SIGKILL");
    }
    if (fault.when == "before") TcpStore("127.0.0.1", port, std::chrono::seconds(60)).set("ddp/0/world/user/go", "");
    for (const std::size_t rank : survivors_of(fault)) {
      times.push_back(check_survivor(job.finish(rank), fault, killed));
    }
  }
  CHECK(no_child_left());
}

void print_times(const char* what, std::vector<double>& times) {
  if (times.empty()) return;
  std::sort(times.begin(), times.end());
  std::printf("%s: %zu survivors; from the kill to the error: median %.1f ms, 99 %% %.1f ms, worst %.1f ms\n", what,
              times.size(), times[times.size() / 2], times[times.size() * 99 / 100], times.back());
}

}  // namespace

TEST_CASE("faults: whatever rank is killed in whatever operation, the others name it and go on without it",
          "[runtime][integration][P23]") {
  std::vector<double> times;
  const std::vector<int> sizes = is_full() ? std::vector<int>{2, 3, 4} : std::vector<int>{3};
  for (const char* when : {"before", "in", "inside", "after"}) {
    for (const std::string& operation : kOperations) {
      for (const int size : sizes) {
        for (int victim = is_full() ? 0 : 1; victim < (is_full() ? size : 2); ++victim) {
          run_fault({operation, when, size, victim}, times);
        }
      }
    }
  }
  if (is_full()) print_times("with a launcher", times);
}

TEST_CASE("faults: a rank that waits for a living one learns of a third one's death", "[runtime][integration][P23]") {
  std::vector<double> times;
  const std::vector<int> sizes = is_full() ? std::vector<int>{3, 4} : std::vector<int>{3};
  for (const char* when : {"before", "in", "inside"}) {
    for (const int size : sizes) {
      for (int victim = 0; victim < size; ++victim) run_fault({"recv from the living", when, size, victim}, times);
    }
  }
  if (is_full()) print_times("waiting for the living", times);
}

TEST_CASE("faults: without a launcher the rank whose connection broke first is named", "[runtime][integration][P23]") {
  std::vector<double> times;
  const std::vector<int> sizes = is_full() ? std::vector<int>{2, 3, 4} : std::vector<int>{3};
  const std::vector<std::string> whens = is_full() ? std::vector<std::string>{"before", "in", "inside", "after"}
                                                   : std::vector<std::string>{"in", "inside"};
  for (const std::string& when : whens) {
    for (const std::string& operation : kOperations) {
      for (const int size : sizes) {
        for (int victim = 1; victim < (is_full() ? size : 2); ++victim) {  // rank 0 hosts the store
          run_fault({operation, when, size, victim, false}, times);
        }
      }
    }
  }
  if (is_full()) print_times("without a launcher", times);
}

TEST_CASE("faults: under ddprun the others learn of a death in ddprun's words, and go on until it stops them",
          "[runtime][integration][P23]") {
  using namespace ddp::testing;
  const std::string operation = GENERATE("all_reduce", "recv from the living");
  Process job({DDPRUN_BINARY, "--nproc-per-node", "3", COLLECTIVE_WORKER, "fault " + operation + ",inside,1"});
  const Result result = job.wait();
  INFO(result.out << result.err);
  CHECK(result.code == 128 + SIGKILL);
  CHECK(count(result.out, ": 3 world: ") == 2);
  CHECK(count(result.out, "rank 1 on ") == 2);
  CHECK(count(result.out, " was killed by SIGKILL\n") == 2);
  CHECK(count(result.out, "recovered\n") == 2);
  CHECK(job.all_gone());
}
