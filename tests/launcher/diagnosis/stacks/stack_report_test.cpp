// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/stacks/stack_report.hpp"

#include "launcher/diagnosis/stacks/stack_json.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace ddp::launcher;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

constexpr char kCollectives[] = "/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py";
constexpr char kLogger[] = "/usr/lib/python3.11/site-packages/torch/distributed/c10d_logger.py";

WorkerStacks sleeper(int rank, std::vector<StackFrame> python, std::vector<StackFrame> native = {}) {
  return {
      rank, 100 + rank, {{100 + rank, "MainThread", "asleep in futex_wait", std::move(python), std::move(native)}}, {}};
}
WorkerStacks reduces(int rank) {
  return sleeper(rank,
                 {{"all_reduce", kCollectives, 2810}, {"wrapper", kLogger, 83}, {"step", "/home/me/train.py", 88}});
}

}  // namespace

TEST_CASE("stack report: ranks that do the same are one entry, and those that few do come first", "[launcher][unit]") {
  std::vector<WorkerStacks> workers = {reduces(0), reduces(1), reduces(2), reduces(4)};
  workers.push_back(sleeper(3, {{"load", "/home/me/data.py", 31}, {"step", "/home/me/train.py", 80}},
                            {{"clock_nanosleep", "/usr/lib/libc.so.6"}, {"time_sleep", "/usr/lib/libpython3.11.so"}}));
  const std::string text = describe_stacks(workers);
  CHECK_THAT(text, StartsWith("rank 3: in clock_nanosleep, called at data.py:31 (load)\n"
                              "    load                       /home/me/data.py:31\n"
                              "    step                       /home/me/train.py:80\n"
                              "    which has called: time_sleep > clock_nanosleep\n"
                              "    the kernel says: asleep in futex_wait\n"
                              "ranks 0-2, 4: in all_reduce, called at train.py:88 (step)\n"));
}

TEST_CASE("stack report: of native programs, the innermost function that has a name", "[launcher][unit]") {
  CHECK_THAT(describe_stacks({sleeper(0, {}, {{"", "/usr/lib/libc.so.6"}, {"wait", "/usr/bin/train"}})}),
             StartsWith("rank 0: in wait\n"));
}

TEST_CASE("stack report: ranks that wait in one call of libddp are one entry, however libddp waits in it",
          "[launcher][unit]") {
  const char* const kLibddp = "/usr/lib/libddp.so.1";
  const auto waits = [&](int rank, const char* how) {
    const std::string header = "/home/me/ddp/include/ddp/process_group.hpp";
    return sleeper(rank, {},
                   {{how, "/usr/lib/libc.so.6"},
                    {"ddp_all_reduce", kLibddp},
                    {"ddp::ProcessGroup::all_reduce", "/home/me/train", 109, header},
                    {"main", "/home/me/train", 15, "/home/me/train.cpp"},
                    {"__libc_start_call_main", "/usr/lib/libc.so.6"},
                    {"_start", "/home/me/train"}});
  };
  CHECK(describe_stacks({waits(0, "syscall"), waits(2, "__poll")}) ==
        "ranks 0, 2: in ddp::ProcessGroup::all_reduce, called at train.cpp:15 (main)\n"
        "    ddp::ProcessGroup::all_reduce /home/me/ddp/include/ddp/process_group.hpp:109\n"
        "    main                       /home/me/train.cpp:15\n"
        "    which has called: ddp_all_reduce > syscall\n"
        "    the kernel says: asleep in futex_wait\n");
}

TEST_CASE("stack report: what the kernel says is said once where nothing else is known", "[launcher][unit]") {
  CHECK(describe_stacks({sleeper(0, {})}) == "rank 0: asleep in futex_wait\n");
}

TEST_CASE("stack report: threads that run the user's code have a line, and what is missing is said",
          "[launcher][unit]") {
  WorkerStacks one = reduces(0);
  one.threads.push_back({101, "loader", "runs", {{"read", "/home/me/data.py", 9}}, {}});
  one.threads.push_back({102, "pin", "runs", {{"run", "/usr/lib/python3.11/threading.py", 9}}, {}});
  one.missing = {"eu-stack: no right"};
  const std::string text = describe_stacks({one});
  CHECK_THAT(text, Contains("    thread loader: at data.py:9 (read)\n"));
  CHECK_THAT(text, !Contains("pin"));
  CHECK_THAT(text, Catch::EndsWith("    eu-stack: no right\n"));
  WorkerStacks ended = {5, 105, {}, {"the process has ended"}};
  CHECK(describe_stacks({ended}) == "rank 5: the process has ended\n");
}

TEST_CASE("stack report: as JSON it has everything", "[launcher][unit]") {
  const auto list = nlohmann::json::parse(stacks_json({reduces(0), {1, 101, {}, {"the process has ended"}}}));
  CHECK(list[0]["rank"] == 0);
  CHECK(list[0]["threads"][0]["python"][2] ==
        nlohmann::json({{"function", "step"}, {"file", "/home/me/train.py"}, {"line", 88}}));
  CHECK(list[0]["threads"][0]["kernel"] == "asleep in futex_wait");
  CHECK(list[1]["missing"][0] == "the process has ended");
}
