// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/culprit.hpp"

#include <catch2/catch.hpp>

#include "launcher/diagnosis/stacks/stack_json.hpp"

using namespace ddp::launcher;

namespace {

constexpr char kC10d[] = "/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py";

WorkerStacks worker(int rank, std::vector<StackFrame> python, std::vector<StackFrame> native = {}) {
  return {rank, 100 + rank, {{100 + rank, "main", "asleep in futex_wait", std::move(python), std::move(native)}}, {}};
}
WorkerStacks calls(int rank, const std::string& collective, int line) {
  return worker(rank, {{collective, kC10d, 2810}, {"step", "/home/me/train.py", line}});
}
WorkerStacks loads(int rank) {
  return worker(rank, {{"get", "/usr/lib/python3.11/queue.py", 171}, {"load", "/home/me/data.py", 31}});
}

}  // namespace

TEST_CASE("culprit: a rank that has ended, if others wait", "[launcher][unit]") {
  const Culprit found = find_culprit({calls(0, "all_reduce", 88), loads(2)}, {{1, "exited with code 0"}});
  CHECK(found.ranks == std::vector{1});
  CHECK(found.guilt == Guilt::Ended);
  CHECK(found.words ==
        "rank 1 exited with code 0, and the others still run: rank 0 in all_reduce, called at train.py:88 (step); "
        "rank 2 in get, called at data.py:31 (load)");
  CHECK(find_culprit({loads(0), loads(2)}, {{1, "exited with code 0"}}).guilt == Guilt::Everyone);
}

TEST_CASE("culprit: else one that is stopped", "[launcher][unit]") {
  WorkerStacks stopped = calls(2, "all_reduce", 88);
  stopped.threads[0].kernel = "stopped by a signal";
  const Culprit found = find_culprit({calls(0, "all_reduce", 88), loads(1), stopped}, {});
  CHECK(found.ranks == std::vector{2});
  CHECK(found.guilt == Guilt::Stopped);
  CHECK(found.place == "train.py:88");
}

TEST_CASE("culprit: else those that are in no distributed call, by the innermost line of the user's",
          "[launcher][unit]") {
  const Culprit found = find_culprit({calls(0, "all_reduce", 88), calls(1, "all_reduce", 88), loads(2)}, {});
  CHECK(found.ranks == std::vector{2});
  CHECK(found.guilt == Guilt::Outside);
  CHECK(found.place == "data.py:31");
  CHECK(found.words ==
        "rank 2 is late: in get, called at data.py:31 (load); the others wait: ranks 0-1 in all_reduce, called at "
        "train.py:88 (step)");
}

TEST_CASE("culprit: else those where the fewest are, and both if two are at different places", "[launcher][unit]") {
  const Culprit odd =
      find_culprit({calls(0, "all_reduce", 88), calls(1, "broadcast", 90), calls(2, "all_reduce", 88)}, {});
  CHECK(odd.ranks == std::vector{1});
  CHECK(odd.guilt == Guilt::Fewest);
  const Culprit both = find_culprit({calls(0, "all_reduce", 88), calls(1, "all_reduce", 90)}, {});
  CHECK(both.ranks == std::vector{0, 1});
}

TEST_CASE("culprit: all ranks at one place are said to be", "[launcher][unit]") {
  const Culprit found = find_culprit({calls(0, "barrier", 88), calls(1, "barrier", 88)}, {});
  CHECK(found.guilt == Guilt::Everyone);
  CHECK(found.place == "train.py:88");
}

TEST_CASE("culprit: native programs are inside where libddp is between their code and the wait", "[launcher][unit]") {
  const StackFrame wait = {"pthread_cond_wait", "/usr/lib/libc.so.6"},
                   reduce = {"ddp_all_reduce", "/opt/lib/libddp.so.1"}, header = {"ddp::all_reduce", "/home/me/train"},
                   own = {"step", "/home/me/train", 88, "/home/me/train.cpp"},
                   start = {"__libc_start_main", "/usr/lib/libc.so.6"},
                   file = {"std::getline", "/usr/lib/libstdc++.so.6"};
  const Culprit found =
      find_culprit({worker(0, {}, {wait, reduce, header, own, start}), worker(1, {}, {file, own, start})}, {});
  CHECK(found.ranks == std::vector{1});
  CHECK(found.place == "train.cpp:88");
  CHECK(found.words ==
        "rank 1 is late: in std::getline, called at train.cpp:88 (step); the others wait: rank 0 in ddp::all_reduce, "
        "called at train.cpp:88 (step)");
}

TEST_CASE("stack json: what is written is read again", "[launcher][unit]") {
  const std::vector<WorkerStacks> workers = {
      worker(3, {{"f", "/a.py", 3}}, {{"", "/usr/lib/libc.so.6"}, {"main", "/b", 7, "/b.cpp"}}),
      {4, 104, {}, {"the process has ended"}}};
  const auto read = stacks_from_json(stacks_json(workers));
  REQUIRE(read);
  CHECK(stacks_json(*read) == stacks_json(workers));
  CHECK((*read)[0].threads[0].native == workers[0].threads[0].native);
  CHECK_FALSE(stacks_from_json("{"));
  CHECK_FALSE(stacks_from_json(R"([{"rank":0}])"));
}

TEST_CASE("culprit: where all main threads wait at one line, other threads make the difference", "[launcher][unit]") {
  const StackFrame join = {"join", "/usr/lib/python3.11/threading.py", 1119}, step = {"step", "/home/me/train.py", 90};
  std::vector<WorkerStacks> workers;
  for (int rank = 0; rank < 3; ++rank) {
    workers.push_back(worker(rank, {join, step}));
    const std::vector<StackFrame> hook =
        rank == 1 ? std::vector<StackFrame>{{"hook", "/home/me/train.py", 12}}
                  : std::vector<StackFrame>{{"all_reduce", kC10d, 2810}, {"hook", "/home/me/train.py", 14}};
    workers.back().threads.push_back({200 + rank, "backward", "asleep", hook, {}});
  }
  const Culprit found = find_culprit(workers, {});
  CHECK(found.ranks == std::vector{1});
  CHECK(found.guilt == Guilt::Outside);
  CHECK(found.words ==
        "rank 1 is late: in join, called at train.py:90 (step); its thread backward: at train.py:12 (hook); the others "
        "wait: ranks 0, 2 in join, called at train.py:90 (step)");
}

TEST_CASE("culprit: what a process of the late rank does is said, too", "[launcher][unit]") {
  WorkerStacks late = loads(1);
  late.children.push_back({300, "pt_data_worker", {{300, "main", "asleep", {{"decode", "/home/me/data.py", 7}}, {}}}});
  late.children.push_back(
      {301, "python", {{301, "main", "asleep", {{"main", "/usr/lib/python3.11/tracker.py", 1}}, {}}}});
  const Culprit found = find_culprit({calls(0, "all_reduce", 88), late}, {});
  CHECK(found.words ==
        "rank 1 is late: in get, called at data.py:31 (load); its process 300 (pt_data_worker): at data.py:7 (decode); "
        "the others wait: rank 0 in all_reduce, called at train.py:88 (step)");
  const auto again = stacks_from_json(stacks_json({late}));
  REQUIRE(again);
  REQUIRE(again->at(0).children.size() == 2);
  CHECK(again->at(0).children[0].name == "pt_data_worker");
  CHECK(again->at(0).children[0].threads[0].python == late.children[0].threads[0].python);
}

TEST_CASE("culprit: nodes that do not answer are named with their ranks", "[launcher][unit]") {
  const Culprit one = accuse_silent({{"b", {2, 3}}}, {calls(0, "all_reduce", 88), calls(1, "all_reduce", 88)});
  CHECK(one.ranks == std::vector{2, 3});
  CHECK(one.words ==
        "node b (ranks 2-3) does not answer: is its ddprun stopped, or its machine or network down? The others: ranks "
        "0-1 in all_reduce, called at train.py:88 (step)");
  const Culprit two = accuse_silent({{"b", {2}}, {"c", {3}}}, {});
  CHECK(two.ranks == std::vector{2, 3});
  CHECK(two.words.starts_with("node b (rank 2), node c (rank 3) do not answer"));
}
