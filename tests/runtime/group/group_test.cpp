// SPDX-License-Identifier: BSD-3-Clause
// libddp with real processes. collective_worker.cpp is what each rank does and checks by itself.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include "rendezvous/store/server.hpp"
#include "tests/runtime/job/job.hpp"
#include "tests/runtime/job/run_job.hpp"
#include "tests/support/environment.hpp"
#include "tests/support/process.hpp"

using Catch::Matchers::Contains;
using ddp::rendezvous::StoreServer;
using ddp::test::Ended;
using ddp::test::free_port;
using ddp::test::Job;
using ddp::test::no_child_left;
using ddp::test::run;
using ddp::test::run_with_a_death;

namespace {

const ddp::test::Variables kCompared = {{"DDP_DEBUG", "detail"}};

}  // namespace

TEST_CASE("collectives: every operation gives the right result for every type on every rank",
          "[runtime][integration]") {
  const int size = GENERATE(1, 2, 4);
  run(size, "collectives");
}

TEST_CASE("collectives: memory of the group's gives the same bits, with and without memory that ranks share",
          "[runtime][integration]") {
  const int size = GENERATE(1, 2, 4);
  for (const std::string& output : run(size, "shared memory")) CHECK_THAT(output, Contains("there is no memory of"));
}

TEST_CASE("collectives: asynchronous operations run in the order issued, blocking ones after them",
          "[runtime][integration]") {
  const int size = GENERATE(1, 2, 4);
  for (const std::string& output : run(size, "async")) {
    CHECK_THAT(output, Contains("waiting for nothing failed: 1 the group is null"));
    CHECK_THAT(output, Contains("waiting for the future failed: 1 world: no operation #1000000 was issued"));
  }
}

TEST_CASE("threads: none is started for a wait, and all sleep while nothing is in flight", "[runtime][integration]") {
  run(2, "threads");
}

TEST_CASE("collectives: wrong arguments are refused and leave the group alive", "[runtime][integration]") {
  const int size = GENERATE(1, 2);
  for (const std::string& output : run(size, "invalid")) {
    CHECK_THAT(output, Contains("null failed: 1 all_reduce: null data for 4 elements"));
    CHECK_THAT(output, Contains("average of integers failed: 1 all_reduce: an average of int32 would round"));
    CHECK_THAT(
        output,
        Contains(
            "gpu failed: 1 world: all_reduce of memory of cuda:0: the group has no backend for it; give it \"nccl\""));
    CHECK_THAT(output, Contains("type failed: 1 all_reduce: there is no element type 12"));
    CHECK_THAT(output, Contains("root failed: 1 broadcast: root " + std::to_string(size)));
    CHECK_THAT(output, Contains("bits failed: 1 all_reduce: and of float32 means nothing"));
    CHECK_THAT(output, Contains("reduction failed: 1 reduce: there is no reduction 9"));
    CHECK_THAT(output, Contains("counts failed: 1 all_to_all: the input has 4 elements, but its counts add up to "));
    CHECK_THAT(output, Contains("gather failed: 1 all_gather: output has 3 elements, but "));
  }
}

TEST_CASE("collectives: ranks that disagree on the parts of an all_to_all all learn which rank sends what",
          "[runtime][integration]") {
  for (const std::string& output : run(3, "uneven mismatch", kCompared)) {
    CHECK_THAT(output, Contains("all_to_all failed: 5 world: all_to_all #1 ("));
    CHECK_THAT(output, Contains("ranks disagree: rank 0 sends 2 elements to rank 2, which expects 1\n"));
  }
}

TEST_CASE("collectives: ranks that disagree all learn which rank called what", "[runtime][integration]") {
  for (const std::string& output : run(3, "mismatch", kCompared)) {
    CHECK_THAT(output, Contains("all_reduce failed: 5 world: all_reduce #1 ("));
    CHECK_THAT(output, Contains("ranks disagree: rank 0 called all_reduce of 1000 float32 (sum); "
                                "ranks 1, 2 called all_reduce of 500 float32 (sum)"));
    CHECK_THAT(output,
               Contains("barrier failed: 4 world: barrier #2: the group was aborted by an earlier error: world: "
                        "all_reduce #1"));
  }
}

TEST_CASE("collectives: a killed rank fails the others at once, quoting what the launcher knows",
          "[runtime][integration][P23]") {
  const int size = GENERATE(2, 4);
  for (const auto& [rank, said] : run_with_a_death(size, "lose rank 1", {1, "ready"})) {
    INFO("rank " << rank << " said: " << said);
    const std::string why = "world: all_reduce #2 (33.0 MB): rank 1 on node b was killed by SIGKILL\n";
    CHECK_THAT(said, Contains("all_reduce failed: 3 " + why));
    CHECK_THAT(said,
               Contains("barrier failed: 4 world: barrier #3: the group was aborted by an earlier error: " + why));
  }
}

TEST_CASE("collectives: without a launcher a killed rank is still an error", "[runtime][integration][P23]") {
  const std::uint16_t port = free_port();
  {
    Job job(2, "lose rank 1", port, false);
    for (std::size_t rank = 0; rank < 2; ++rank) job.wait_for_line(rank, "ready");
    job.kill(1, SIGKILL);
    const Ended ended = job.finish(0);
    INFO("rank 0 said: " << ended.output);
    CHECK(ended.code == 0);
    CHECK_THAT(ended.output,
               Contains("all_reduce failed: 3 world: all_reduce #2 (33.0 MB): another rank died or left ("));
  }
  CHECK(no_child_left());
}

TEST_CASE("collectives: a stopped rank is a timeout at the deadline, and ends the group",
          "[runtime][integration][P5]") {
  StoreServer store({"127.0.0.1"}, 0);
  {
    Job job(2, "stop rank 1", store.port(), true);
    const Ended ended = job.finish(0);
    INFO("rank 0 said: " << ended.output);
    CHECK(ended.code == 0);
    CHECK_THAT(ended.output, Contains("all_reduce failed: 2 world: all_reduce #2 (40 B): not done in 300 ms"));
    CHECK_THAT(ended.output,
               Contains("the one after failed: 4 world: all_reduce #3 (40 B): the group was aborted by an "
                        "earlier error: world: all_reduce #2"));
    CHECK_THAT(ended.output, Contains("barrier failed: 4 world: barrier #4: the group was aborted"));
    job.kill(1, SIGKILL);  // stopped for good
    CHECK(job.finish(1).signal == SIGKILL);
  }
  CHECK(no_child_left());
}

TEST_CASE("collectives: a rank that leaves fails the ranks that wait for it", "[runtime][integration]") {
  const std::vector<std::string> outputs = run(2, "leave early");
  CHECK_THAT(outputs[1], Contains("barrier failed: 3 world: barrier #1: another rank died or left"));
}

TEST_CASE("messages: arrive whole and in order, any number in flight, beside collectives", "[runtime][integration]") {
  const int size = GENERATE(2, 3, 4);
  const char* debug = GENERATE("off", "detail");
  for (const std::string& output : run(size, "messages", {{"DDP_DEBUG", debug}})) {
    CHECK_THAT(output, Contains("is this rank itself"));
    CHECK_THAT(output, Contains("to nobody failed: 1 send: " + std::to_string(size) + " is not a rank of a group of"));
    CHECK_THAT(output, Contains("from nobody failed: 1 recv: -2 is not a rank of a group of"));
  }
}

TEST_CASE("work: one that is dropped lets go of its memory, and one that is kept outlives its session",
          "[runtime][integration]") {
  if (ddp::testing::variable("TEST_BACKEND", "ddp") != "ddp") return;  // others wait for a receive
  const std::string debug = GENERATE("", "detail");
  for (const std::string& output : run(2, "dropped", {{"DDP_DEBUG", debug}})) {
    CHECK_THAT(output, Contains("after the session failed: 1 there is no such group in this process: it was destroyed, "
                                "its session has ended, or it belongs to the process that forked this one"));
    CHECK_THAT(output, Contains("a view after the session failed: 1 there is no such group in this process"));
  }
}

TEST_CASE("session: a child of fork() ends nothing of its parent's, and has no group", "[runtime][integration]") {
  const ddp::testing::TemporaryFolder folder;
  for (const std::string& output : run(2, "fork", {{"TEST_FOLDER", folder.path()}})) {
    CHECK_THAT(output, Contains("an operation of a child failed: 1 there is no such group in this process"));
    CHECK_THAT(output, Contains("a wait of a child failed: 1 there is no such group in this process"));
  }
}

TEST_CASE("messages: when the two sides differ both learn what was sent and what was expected",
          "[runtime][integration]") {
  const std::vector<std::string> outputs = run(2, "message mismatch", kCompared);
  const std::string what =
      "world: recv from any rank (20 B, tag 4): ranks disagree: rank 0 sends 10 float32, rank 1 "
      "expects 5 int32";
  CHECK_THAT(outputs[1], Contains("recv failed: 5 " + what));
  CHECK_THAT(outputs[0], Contains("send or barrier failed: 3 world: ") && Contains(": rank 1 gave up: " + what));
}

TEST_CASE("messages: the end of a session does not wait for receives that no thread waits for",
          "[runtime][integration]") {
  // The group's timeout is half an hour, the test's a few minutes.
  const char* debug = GENERATE("off", "detail");
  run(2, "left pending", {{"DDP_DEBUG", debug}});
}

TEST_CASE("messages: a world of one has no rank to send to", "[runtime][integration]") {
  const std::string output = run(1, "messages alone").front();
  CHECK_THAT(output, Contains("send failed: 1 send: rank 0 is this rank itself"));
  CHECK_THAT(output, Contains("recv failed: 1 recv: there is no rank to receive from in a group of one"));
}

TEST_CASE("messages: one that never comes is a timeout at its deadline and ends the group", "[runtime][integration]") {
  const std::string output = run(2, "unanswered").front();
  CHECK_THAT(output, Contains("recv failed: 2 world: recv from rank 1 (40 B, tag 4): not done in 300 ms"));
  CHECK_THAT(output, Contains("the other failed: 4 world: recv from rank 1 (40 B, tag 3): the group was aborted by an "
                              "earlier error: world: recv from rank 1 (40 B, tag 4)"));
  CHECK_THAT(output, Contains("barrier failed: 4 world: barrier #1: the group was aborted"));
}

TEST_CASE("messages: when the group fails, every wait for a message fails too", "[runtime][integration]") {
  const std::string output = run(2, "abort while waiting").front();
  CHECK_THAT(output, Contains("from anyone failed: 4 world: recv from any rank (40 B, tag 0): the group was aborted"));
}

TEST_CASE("messages: a killed sender fails who waits for it", "[runtime][integration][P23]") {
  CHECK_THAT(
      run_with_a_death(2, "lose sender", {1, "ready"}).at(0),
      Contains("recv failed: 3 world: recv from rank 1 (40 B, tag 5): rank 1 on node b was killed by SIGKILL\n"));
}

TEST_CASE("session: an unknown DDP_DEBUG is refused", "[runtime][integration]") {
  Job job(0, "", 0, false);
  job.start({"who"}, {{"DDP_DEBUG", "verbose"}});
  CHECK_THAT(job.finish(0).output, Contains("error: 1 DDP_DEBUG is \"verbose\": expected off, info or detail"));
}

TEST_CASE("session: its store is shared by all ranks of the job and no other process", "[runtime][integration]") {
  const int size = GENERATE(1, 4);
  run(size, "store");
}

TEST_CASE("session: rank 0 hosts the store where the launcher does not, until all have left",
          "[runtime][integration]") {
  const std::uint16_t port = free_port();
  {
    Job job(4, "who", port, false);
    for (std::size_t rank = 0; rank < 4; ++rank) {
      const Ended ended = job.finish(rank);
      CHECK(ended.code == 0);
      const std::string r = std::to_string(rank);
      CHECK(ended.output == "rank " + r + " of 4, local rank " + r + " of 4, restart 0\n");
    }
  }
  CHECK(no_child_left());
}

TEST_CASE("session: a process may join a second time", "[runtime][integration]") {
  const int size = GENERATE(1, 2);
  run(size, "join twice");
}

TEST_CASE("session: without a job's environment a process is a world of its own", "[runtime][integration]") {
  Job job(0, "", 0, false);
  job.start({"who"}, {});
  const Ended ended = job.finish(0);
  CHECK(ended.code == 0);
  CHECK(ended.output == "rank 0 of 1, local rank 0 of 1, restart 0\n");
  CHECK(no_child_left());
}

TEST_CASE("session: half of a job's environment is refused by name", "[runtime][integration]") {
  Job job(0, "", 0, false);
  job.start({"who"}, {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}});
  const Ended ended = job.finish(0);
  CHECK(ended.code == 1);
  CHECK_THAT(ended.output, Contains("error: 1 a worker of a job needs MASTER_PORT too"));
  CHECK_THAT(ended.output, Contains("ddprun --nproc_per_node"));
  CHECK(no_child_left());
}

TEST_CASE("session: a rank that never comes is named when the deadline passes", "[runtime][integration][P23]") {
  StoreServer store({"127.0.0.1"}, 0);
  Job job(0, "", 0, false);
  const auto start = [&](const char* rank) {
    job.start({"who", "1500"}, {{"RANK", rank},
                                {"WORLD_SIZE", "3"},
                                {"MASTER_ADDR", "127.0.0.1"},
                                {"MASTER_PORT", std::to_string(store.port())},
                                {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  };
  start("0");
  start("1");
  for (std::size_t process = 0; process < 2; ++process) {
    const Ended ended = job.finish(process);
    INFO(ended.output);
    CHECK(ended.code == 1);
    CHECK_THAT(ended.output, Contains("error: 2 world: connecting rank " + std::to_string(process) + " of 3"));
    CHECK_THAT(ended.output, Contains("rank 2 never joined"));
  }
  CHECK(no_child_left());
}

TEST_CASE("session: a rank that waits for the others can be stopped, its threads leave signals to the user's",
          "[runtime][integration][P23]") {
  StoreServer store({"127.0.0.1"}, 0);
  Job job(0, "", 0, false);
  const pid_t rank =
      job.start({"who", "60000"}, {{"RANK", "0"},
                                   {"WORLD_SIZE", "2"},
                                   {"MASTER_ADDR", "127.0.0.1"},
                                   {"MASTER_PORT", std::to_string(store.port())},
                                   {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                   {"GLOO_SOCKET_IFNAME", "lo"}});  // else the ranks exchange addresses first
  // Gloo's thread exists, so the rank waits for rank 1 now or soon.
  const auto blocked_by_thread = [&] {
    std::vector<bool> blocked;
    for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(rank) + "/task")) {
      std::ifstream status(task.path() / "status");
      for (std::string line; std::getline(status, line);) {
        if (line.rfind("SigBlk:", 0) == 0) {
          blocked.push_back((std::stoull(line.substr(7), nullptr, 16) >> (SIGTERM - 1) & 1) != 0);
        }
      }
    }
    return blocked;
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto is_so = [](const std::vector<bool>& blocked) {
    return blocked.size() > 1 && !blocked.front() && std::count(blocked.begin(), blocked.end(), false) == 1;
  };
  bool was_so = false;  // the first thread blocks signals, too, while it creates another one
  while (!was_so && std::chrono::steady_clock::now() < deadline) was_so = is_so(blocked_by_thread());
  CHECK(was_so);
  job.kill(0, SIGTERM);
  CHECK(job.finish(0).signal == SIGTERM);
  CHECK(no_child_left());
}

TEST_CASE("session: ranks with different world sizes do not meet", "[runtime][integration]") {
  StoreServer store({"127.0.0.1"}, 0);
  Job job(0, "", 0, false);
  for (const char* rank : {"0", "1"}) {
    job.start({"who", "3000"}, {{"RANK", rank},
                                {"WORLD_SIZE", *rank == '0' ? "2" : "3"},
                                {"MASTER_ADDR", "127.0.0.1"},
                                {"MASTER_PORT", std::to_string(store.port())},
                                {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  }
  const Ended ended = job.finish(1);
  CHECK(ended.code == 1);
  CHECK_THAT(ended.output, Contains("error: 5 world: the world size is 3 for rank 1 but 2 for rank 0"));
  CHECK(job.finish(0).code == 1);  // it waited for a rank 1 of its own world
  CHECK(no_child_left());
}

TEST_CASE("session: a missing backend is an error that names the folders searched", "[runtime][integration]") {
  Job job(0, "", 0, false);
  job.start({"who", "1000", "nosuch"},
            {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}});
  const Ended ended = job.finish(0);
  CHECK(ended.code == 1);
  CHECK_THAT(ended.output,
             Contains("error: 6 backend \"nosuch\": no libddp_nosuch.so in ") && Contains("; backends there: gloo"));
  CHECK_THAT(ended.output, Contains("(if it is a plug-in of yours, set DDP_BACKEND_PATH to the folder of its module)"));
  CHECK(no_child_left());
}

TEST_CASE("session: a misspelt backend leads to the one that was meant", "[runtime][integration]") {
  Job job(0, "", 0, false);
  job.start({"who", "1000", "ncll"},
            {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}});
  CHECK_THAT(job.finish(0).output, Contains("did you mean \"nccl\"?"));
  CHECK(no_child_left());
}

TEST_CASE("session: an unknown interface is an error that names it", "[runtime][integration]") {
  StoreServer store({"127.0.0.1"}, 0);
  Job job(0, "", 0, false);
  job.start({"who"}, {{"RANK", "0"},
                      {"WORLD_SIZE", "2"},
                      {"MASTER_ADDR", "127.0.0.1"},
                      {"MASTER_PORT", std::to_string(store.port())},
                      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                      {"GLOO_SOCKET_IFNAME", "nosuch0"}});
  const Ended ended = job.finish(0);
  CHECK(ended.code == 1);
  CHECK_THAT(ended.output, Contains("error: 1 no network interface nosuch0"));
  CHECK(no_child_left());
}
