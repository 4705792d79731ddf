// SPDX-License-Identifier: BSD-3-Clause
// The sentences in which the coordinator gives its reasons, one for each kind: other tests ask for the kind.
#include <catch2/catch.hpp>
#include <csignal>
#include <functional>
#include <string>

#include "rendezvous/coordinator/core/coordinator_core.hpp"
#include "tests/rendezvous/coordinator/obedient_nodes.hpp"

using namespace ddp::rendezvous;
using std::chrono::seconds;

namespace {

AgentState& state_of(Job& job, const std::string& host) { return job.nodes[host].state; }

void stops_itself(Job& job, const std::string& why, Hang hang) {
  state_of(job, "b").stopped_because = why;
  state_of(job, "b").hang = hang;
  job.report("b");
}

// Rank 1 fails in a way that allows no restart.
void fails_for_good(Job& job, bool never_ran) {
  job.fail("b", 1);
  state_of(job, "b").failures[0].never_ran = never_ran;
  if (!never_ran) state_of(job, "b").unkillable = {77};
  job.stopped();
}

}  // namespace

TEST_CASE("reasons: each kind has its sentence", "[rendezvous][unit]") {
  const struct {
    Why why;
    std::string to, words;
    std::function<void(Job&)> happens;  // while nodes a and b run round 1
  } table[] = {
      {Why::NodeLost, "a", "node b (10.0.0.b) was lost: its link broke (reset) and did not come back within 3 s",
       [](Job& job) { job.gone("b"); }},
      {Why::NodeLost, "a", "node b (10.0.0.b) was lost: no word from it for 15 s",
       [](Job& job) { job.pass(seconds(15), "b"); }},
      {Why::NodeLeft, "a", "node b (10.0.0.b) left the job: its agent was killed by SIGKILL",
       [](Job& job) {
         state_of(job, "b").left = true;
         state_of(job, "b").stopped_because = "its agent was killed by SIGKILL";
         job.report("b");
       }},
      {Why::NodeLeft, "a", "node b (10.0.0.b) leaves (SIGTERM received)",
       [](Job& job) {
         state_of(job, "b").stop_signal = SIGTERM;
         job.report("b");
       }},
      {Why::Released, "b", "SIGTERM received: this node leaves the job",
       [](Job& job) {
         state_of(job, "b").stop_signal = SIGTERM;
         job.report("b");
         job.stopped();
       }},
      {Why::StopSignal, "b", "SIGTERM received on node a (10.0.0.a)",
       [](Job& job) {
         state_of(job, "a").stop_signal = SIGTERM;
         job.report("a");
       }},
      {Why::NodeStopped, "a", "node b (10.0.0.b) stopped its workers: its connection to the head has ended",
       [](Job& job) { stops_itself(job, "its connection to the head has ended", Hang::None); }},
      {Why::Hang, "a", "node b (10.0.0.b) stopped its workers: no output for 30 s: rank 0 is late",
       [](Job& job) { stops_itself(job, "no output for 30 s: rank 0 is late", Hang::Restart); }},
      {Why::StoreLost, "a",
       "the store is gone: ddp-store (pid 7) was killed by SIGKILL, and 2 connections of workers with it",
       [](Job& job) {
         job.step(StoreLost{2, "ddp-store (pid 7) was killed by SIGKILL"});
       }},
      {Why::WorkerFailed, "a", "rank 1 on node b exited with code 7", [](Job& job) { job.fail("b", 1); }},
      {Why::WorkerFailed, "a", "restart 1 of 1: rank 1 on node b exited with code 7",
       [](Job& job) {
         job.fail("b", 1);
         job.stopped();
         job.start();
       }},
      {Why::NeverRan, "b", "rank 1 on node b exited with code 7; not restarted, since the program cannot run there",
       [](Job& job) { fails_for_good(job, true); }},
      {Why::Unkillable, "b",
       "rank 1 on node b exited with code 7; not restarted, since not all processes could be killed",
       [](Job& job) { fails_for_good(job, false); }},
      {Why::NodeJoined, "a", "node c (10.0.0.c) joined", [](Job& job) { job.join("c"); }},
      {Why::Spare, "d",
       "all places of this job are taken: this node waits as a spare (a job of its own needs another --rdzv-id)",
       [](Job& job) {
         job.join("c");
         job.stopped();
         job.start();
         job.join("d");
       }},
      {Why::Succeeded, "b", "all workers exited with code 0",
       [](Job& job) {
         job.end("a", true);
         job.end("b", true);
       }},
  };
  for (const auto& row : table) {
    CAPTURE(row.words);
    Job job(elastic(1, 3, 1));
    job.join("a");
    job.join("b");
    job.pass(seconds(10));
    job.start();
    row.happens(job);
    CHECK(job.told(row.to).reason == row.words);
    CHECK(job.told(row.to).why == row.why);
  }
}

TEST_CASE("reasons: nodes that do not come, or are not let in", "[rendezvous][unit]") {
  Job missing(with_ranks(3));
  missing.join("a", 0);
  missing.join("b", 2);
  missing.pass(seconds(60));
  CHECK(missing.told("b").reason ==
        "not all nodes came within 60 s (--rdzv-conf join_timeout): 2 of 3 there (a (10.0.0.a), b (10.0.0.b)); "
        "missing: node rank 1");

  Job held(with_ranks(3));
  held.join("a", 0);
  held.join("b", 1);
  held.join("c", 1);
  CHECK(held.told("c").reason ==
        "node rank 1 is held by node b (10.0.0.b), which may be gone: waiting for a word from it");
  held.pass(seconds(2));
  CHECK(held.told("c").reason ==
        "node rank 1 is held by node b (10.0.0.b) and claimed by node c (10.0.0.c): give each host a --node-rank of "
        "its own");

  Job alone(fixed(2, 1));
  alone.join("a");
  alone.join("b");
  alone.start();
  alone.gone("b");
  alone.stopped();
  alone.pass(seconds(60));
  CHECK(alone.told("a").reason ==
        "node b (10.0.0.b) was lost: its link broke (reset) and did not come back within 3 s; nobody took its place "
        "within 60 s (--rdzv-conf join_timeout)");

  Job storeless(fixed(2));
  storeless.join("a");
  storeless.join("b");
  storeless.step(StoreOpened{1, "", 0, "too many open files"});
  CHECK(storeless.told("b").reason == "round 1 has no store: too many open files");
}

TEST_CASE("reasons: an agent is refused with what to do about it", "[rendezvous][unit]") {
  JobIdentity identity{.job = elastic(1, 3, 1), .epoch = "e"};
  AgentState state;
  state.slots = 1;
  const auto refused = [&](auto change) {
    state.job = identity.job;
    change();
    return refusal_of(identity, Roster({}), state).reason;
  };
  CHECK(refused([] {}).empty());
  CHECK(refused([&] { state.job.survivors_stay = true; }) ==
        "--on-failure is shrink on this host and restart at the coordinator: give all hosts the same");
  CHECK(refused([&] { state.job.exclude_after = 3; }) ==
        "--exclude-after is 3 on this host and 0 at the coordinator: give all hosts the same");
  CHECK(refused([&] { state.job.restart_window = seconds(5); }) ==
        "--restart-window is 5 s on this host and 0 s at the coordinator: give all hosts the same");
  CHECK(refused([&] { state.slots = 0; }) == "0 workers on one node: give 1 to 65536");
  state.slots = 1;
  state.epoch = "of another one";
  CHECK(refused([] {}) == "the coordinator that this node served is gone, and another one has taken its place");
  identity.epoch_is_number = true;
  identity.instance = "node-a.2";
  CHECK(refused([] {}) == "the job that this node was part of is over, and another one has its --rdzv-id");
  identity.before = JobRecord::Before{state.instance, {}};
  identity.before->exit.reason = "all workers exited with code 0";
  CHECK(refused([] {}) == "the job that this node was part of is over: all workers exited with code 0");
}
