// SPDX-License-Identifier: BSD-3-Clause
// --on-failure shrink: nodes of an elastic job come and go, and the workers of the others stay.
#include <catch2/catch.hpp>
#include <csignal>
#include <map>
#include <string>

#include "tests/rendezvous/coordinator/small_job.hpp"

using namespace ddp::rendezvous;
using Catch::Matchers::Contains;
using std::chrono::seconds;

namespace {

// Nodes a, b and c have links 1, 2 and 3.
struct ShrinkingJob : SmallJob {
  explicit ShrinkingJob(int min_nodes = 1, int max_restarts = 0) : SmallJob(max_restarts, "10.0.0.2") {
    shape.min_nodes = min_nodes;
    shape.survivors_stay = true;
    core = CoordinatorCore(
        {.job = shape, .epoch = "e", .own_incarnation = "a", .join_timeout = seconds(60), .last_call = seconds(0)});
  }

  void begin(int nodes) {
    for (int link = nodes; link > 0; --link) report(link, on(host_of(link)));
    open();
    for (int link = 1; link <= nodes; ++link) report(link, on(host_of(link), WorkersPhase::Running));
  }
  // b leaves a job of two, and a waits for another node.
  void fall_below_min() {
    begin(2);
    AgentState left = on("b", WorkersPhase::Running);
    left.left = true;
    report(2, left);
    CHECK(stays(1));
    become_quiet(1);
    CHECK(core.phase() == CoordinatorCore::Phase::Gathering);
  }
  void open() { step(StoreOpened{core.round(), "", 1}); }
  void become_quiet(AgentId link) { report(link, on(host_of(link), WorkersPhase::Quiet)); }
  static std::string host_of(AgentId link) { return std::string(1, static_cast<char>('a' + link - 1)); }
  bool stays(AgentId link) const { return told(link).kind == Directive::Kind::Stop && told(link).survivors_stay; }
  std::vector<std::string> published() const {
    std::vector<std::string> texts;
    for (const CoordinatorAction& action : actions) {
      if (const auto* failure = std::get_if<PublishFailure>(&action)) texts.push_back(failure->text);
    }
    return texts;
  }
};

}  // namespace

TEST_CASE("coordinator: a job that shrinks goes on at once without a lost node, and spends no restart",
          "[rendezvous][unit]") {
  ShrinkingJob job;
  job.begin(3);
  AgentState left = job.on("b", WorkersPhase::Running);
  left.left = true;
  job.report(2, left);
  CHECK(job.stays(1));
  CHECK(job.stays(3));
  job.become_quiet(1);
  CHECK(job.core.round() == 1);
  job.become_quiet(3);
  REQUIRE(job.core.round() == 2);  // no last call
  job.open();
  CHECK(job.told(1).assignment.world_size == 2);
  CHECK(job.told(3).assignment.base_rank == 1);  // its seat has closed up
  CHECK(job.told(3).assignment.restart_count == 0);
}

TEST_CASE("coordinator: a job that shrinks takes a node in, and all others stay", "[rendezvous][unit]") {
  ShrinkingJob job;
  job.begin(2);
  job.report(3, job.on("c"));
  CHECK(job.stays(1));
  CHECK(job.stays(2));
  REQUIRE(job.published().size() == 1);  // workers that wait for one another hear of it
  CHECK_THAT(job.published().front(), Contains("node c (10.0.0.2) joined"));
  job.become_quiet(1);
  job.become_quiet(2);
  REQUIRE(job.core.round() == 2);
  job.open();
  CHECK(job.told(3).kind == Directive::Kind::Run);
  CHECK(job.told(1).assignment.node_count == 3);
  CHECK(job.told(1).assignment.restart_count == 0);
}

TEST_CASE("coordinator: a job of which a worker is about to end takes no node in", "[rendezvous][unit]") {
  ShrinkingJob job;
  job.begin(2);
  AgentState ending = job.on("b", WorkersPhase::Running);
  ending.is_ending = true;
  job.report(2, ending);
  job.report(3, job.on("c"));
  CHECK(job.told(1).kind == Directive::Kind::Run);
  CHECK(job.told(3).kind == Directive::Kind::Wait);
}

TEST_CASE("coordinator: a node that its user stops leaves a job that shrinks, and its workers end",
          "[rendezvous][unit]") {
  ShrinkingJob job;
  job.begin(3);
  AgentState state = job.on("c", WorkersPhase::Running);
  state.stop_signal = SIGTERM;
  job.report(3, state);
  CHECK(job.stays(1));
  CHECK(job.told(3).kind == Directive::Kind::Stop);
  CHECK_FALSE(job.told(3).survivors_stay);
  job.become_quiet(1);
  job.become_quiet(2);
  job.report(3, job.on("c"));
  CHECK(job.told(3).kind == Directive::Kind::Exit);
  CHECK(job.core.round() == 2);
}

TEST_CASE("coordinator: below min the workers of a job that shrinks wait for a node, for as long as it may take",
          "[rendezvous][unit]") {
  ShrinkingJob job(2);
  job.fall_below_min();
  SECTION("a node comes") {
    job.report(3, job.on("c"));
    CHECK(job.core.round() == 2);
  }
  SECTION("none comes: the workers end first, then the job, with the reason") {
    job.wait(seconds(59));
    CHECK(job.core.phase() == CoordinatorCore::Phase::Gathering);
    job.wait(seconds(2));
    CHECK(job.told(1).kind == Directive::Kind::Stop);
    CHECK_FALSE(job.told(1).survivors_stay);
    job.report(1, job.on("a"));
    CHECK(job.core.over());
    CHECK(job.told(1).why == Why::NotReplaced);
  }
}

TEST_CASE("coordinator: a node whose quiet workers die while it waits is in the next round, not left behind",
          "[rendezvous][unit]") {
  ShrinkingJob job(2);
  job.fall_below_min();
  job.report(1, job.on("a", WorkersPhase::Stopping));  // one has died, and is not reaped yet
  job.report(3, job.on("c"));
  job.report(4, job.on("d"));
  CHECK(job.core.round() == 1);
  job.become_quiet(1);
  REQUIRE(job.core.round() == 2);
  job.open();
  CHECK(job.told(1).assignment.node_rank == 0);
}

TEST_CASE("coordinator: what each node does has a word, also while it waits", "[rendezvous][unit]") {
  ShrinkingJob job(2);
  const auto words = [&job] {
    std::map<std::string, std::string> all;
    for (const JobFacts::Node& node : job.core.facts().nodes) all[node.host] = node.state;
    return all;
  };
  using Words = std::map<std::string, std::string>;
  job.report(1, job.on("a"));
  CHECK(words() == Words{{"a", "waiting"}});
  job.report(2, job.on("b"));
  job.open();
  CHECK(words() == Words{{"a", "starting"}, {"b", "starting"}});
  job.report(1, job.on("a", WorkersPhase::Running));
  job.report(2, job.on("b", WorkersPhase::Running));
  CHECK(words() == Words{{"a", "running"}, {"b", "running"}});
  AgentState ended = job.on("b");
  ended.succeeded = true;
  ShrinkingJob other(2);
  other.begin(2);
  other.report(2, ended);
  CHECK(other.core.facts().nodes.at(1).state == "done");
  AgentState left = job.on("b", WorkersPhase::Running);
  left.left = true;
  job.report(2, left);
  job.become_quiet(1);
  CHECK(words() == Words{{"a", "quiet"}});
}

TEST_CASE("coordinator: a worker's failure ends a job that shrinks where no restart is left", "[rendezvous][unit]") {
  ShrinkingJob job(1, 1);
  job.begin(2);
  const auto fail = [&] {
    AgentState state = job.on("b", WorkersPhase::Running);
    state.failures.push_back({.rank = 1, .host = "b", .status = {.code = 7}, .already_exiting = true});
    job.report(2, state);
  };
  fail();
  CHECK(job.stays(1));
  job.become_quiet(1);
  job.report(2, job.on("b"));
  job.open();
  CHECK(job.told(1).assignment.restart_count == 1);
  for (const AgentId link : {1, 2}) job.report(link, job.on(ShrinkingJob::host_of(link), WorkersPhase::Running));
  fail();
  CHECK(job.told(1).kind == Directive::Kind::Stop);
  CHECK_FALSE(job.told(1).survivors_stay);
}

TEST_CASE("coordinator: nodes of a job that shrinks are to be given the same --on-failure", "[rendezvous][unit]") {
  ShrinkingJob job;
  job.report(1, job.on("a"));
  AgentState other = job.on("b");
  other.job.survivors_stay = false;
  job.report(2, other);
  CHECK(job.told(2).why == Why::OptionsDiffer);
}

TEST_CASE("coordinator: workers that were told to stay end when a node tells of a hang that ends the job",
          "[rendezvous][unit]") {
  SmallJob job(3, "10.0.0.2");
  job.shape.survivors_stay = true;
  job.core =
      CoordinatorCore({.job = job.shape, .epoch = "e", .own_incarnation = "a", .last_call = std::chrono::seconds(0)});
  job.start();
  AgentState cut_off = job.on("b", WorkersPhase::Running);
  cut_off.stopped_because = "no answer";
  job.report(2, cut_off);
  REQUIRE(job.told(1).kind == Directive::Kind::Stop);
  CHECK(job.told(1).survivors_stay);
  AgentState hangs = job.on("a", WorkersPhase::Quiet);
  hangs.stopped_because = "no output and no step";
  hangs.hang = Hang::End;
  job.report(1, hangs);
  CHECK(job.told(1).kind == Directive::Kind::Stop);
  CHECK_FALSE(job.told(1).survivors_stay);
}

TEST_CASE(
    "coordinator: workers that were told to end are waited for, also when a restart has left its window meanwhile",
    "[rendezvous][unit]") {
  ShrinkingJob job(1, 1);
  job.shape.restart_window = seconds(60);
  job.core = CoordinatorCore({.job = job.shape, .epoch = "e", .own_incarnation = "a", .last_call = seconds(0)});
  const auto hang = [&job] {
    AgentState state = job.on("b");
    state.stopped_because = "no output and no step";
    state.hang = Hang::Restart;
    job.report(2, state);
  };
  job.begin(3);
  hang();
  job.become_quiet(1);
  job.become_quiet(3);
  REQUIRE(job.core.budget_used() == 1);
  job.open();
  for (const AgentId link : {1, 2, 3}) job.report(link, job.on(ShrinkingJob::host_of(link), WorkersPhase::Running));
  AgentState left = job.on("c", WorkersPhase::Running);
  left.left = true;
  job.report(3, left);
  REQUIRE(job.stays(1));  // a node that leaves spends nothing
  job.become_quiet(1);
  hang();  // would spend a restart, and there is none
  REQUIRE_FALSE(job.stays(1));
  const auto beat = [&job] {
    for (const AgentId link : {1, 2}) job.step(AgentBeat{link});
  };
  for (int i = 0; i < 13; ++i) {
    job.wait(seconds(5));
    beat();
  }
  CHECK(job.core.budget_used() == 0);
  CHECK(job.core.phase() == CoordinatorCore::Phase::Stopping);
  job.report(1, job.on("a"));
  CHECK(job.core.round() == 3);
}
