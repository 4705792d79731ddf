// SPDX-License-Identifier: BSD-3-Clause
// Every operation, a rank killed before, in and after it: the others get an error that names it within a second, and go
// on in a group without it. DDPRUN_FAULT_FULL=1: all of it, of 2 to 4 ranks and whichever dies (scripts/stress/faults).
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
  std::string when;  // before, in (the others wait for it), inside (it is there itself), after
  int size = 3;
  int victim = 1;
  bool launcher = true;  // one that hosts the store and tells who died
};

std::string describe(const Fault& f) {
  return f.operation + ", rank " + std::to_string(f.victim) + " of " + std::to_string(f.size) + " dies " + f.when +
         (f.launcher ? "" : ", no launcher");
}

bool is_full() { return std::getenv("DDPRUN_FAULT_FULL") != nullptr; }
// Within a second, where nothing else runs; anywhere long before any deadline.
double allowed_ms() { return is_full() ? 1000 : 30'000; }

// Microseconds since the machine started, as the worker wrote them behind `word`.
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

// Kills the victim as the fault says; returns when that was.
double kill_victim(Job& job, const Fault& fault) {
  const auto victim = static_cast<std::size_t>(fault.victim);
  if (fault.when != "inside") {
    job.wait_for_line(victim, "ready");
    for (const std::size_t rank : survivors_of(fault)) {
      job.wait_for_line(rank, "ready");
      job.wait_until_asleep(rank);  // in the operation; or until it may begin
    }
  }
  const double killed = now_us();
  if (fault.when != "inside") job.kill(victim, SIGKILL);
  const Ended ended = job.finish(victim);
  INFO("the victim said: " << ended.output);
  CHECK(ended.signal == SIGKILL);
  return fault.when == "inside" ? time_after(ended.output, "dies") : killed;
}

// What a survivor said must be what it should have learned; returns how long that took.
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

// Appends to `times` what each survivor needed to learn of the death.
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

void tell(const char* what, std::vector<double>& times) {
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
  if (is_full()) tell("with a launcher", times);
}

TEST_CASE("faults: a rank that waits for a living one learns of a third one's death", "[runtime][integration][P23]") {
  std::vector<double> times;
  const std::vector<int> sizes = is_full() ? std::vector<int>{3, 4} : std::vector<int>{3};
  for (const char* when : {"before", "in", "inside"}) {
    for (const int size : sizes) {
      for (int victim = 0; victim < size; ++victim) run_fault({"recv from the living", when, size, victim}, times);
    }
  }
  if (is_full()) tell("waiting for the living", times);
}

TEST_CASE("faults: without a launcher the rank whose connection broke first is named", "[runtime][integration][P23]") {
  std::vector<double> times;
  const std::vector<int> sizes = is_full() ? std::vector<int>{2, 3, 4} : std::vector<int>{3};
  const std::vector<std::string> whens = is_full() ? std::vector<std::string>{"before", "in", "inside", "after"}
                                                   : std::vector<std::string>{"in", "inside"};
  for (const std::string& when : whens) {
    for (const std::string& operation : kOperations) {
      for (const int size : sizes) {
        for (int victim = 1; victim < (is_full() ? size : 2); ++victim) {  // rank 0 has the store
          run_fault({operation, when, size, victim, false}, times);
        }
      }
    }
  }
  if (is_full()) tell("without a launcher", times);
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
