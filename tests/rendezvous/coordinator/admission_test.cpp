// SPDX-License-Identifier: BSD-3-Clause
// Reports that the coordinator does not believe, and nodes that it does not wait for or keep without a limit.
#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "tests/rendezvous/coordinator/small_job.hpp"

using namespace ddp::rendezvous;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

struct DoubtedJob : SmallJob {
  DoubtedJob() : SmallJob(0, "10.0.0.2") {}

  bool closes(AgentId link) const {
    return std::any_of(actions.begin(), actions.end(), [link](const CoordinatorAction& action) {
      const auto* close = std::get_if<CloseLink>(&action);
      return close && close->agent == link;
    });
  }
  // Node b runs and says this over a link. Returns the reason with which that is closed; empty: it is not.
  std::string says(AgentId link, const std::function<void(AgentState&)>& change) {
    AgentState lie = on("b", WorkersPhase::Running);
    lie.epoch = "e";
    change(lie);
    actions.clear();
    report(link, lie);
    for (const CoordinatorAction& action : last) {
      if (const auto* line = std::get_if<CoordinatorLogLine>(&action); line && closes(link)) return line->text;
    }
    return "";
  }
};

}  // namespace

TEST_CASE("coordinator: a node keeps what it was welcomed with, or its link is closed and may come back",
          "[rendezvous][unit]") {
  const auto said = [](const std::function<void(AgentState&)>& change) {
    DoubtedJob job;
    job.start();
    return job.says(2, change);
  };
  const std::string broke = "the link to node b (10.0.0.2) broke (";
  const std::string changed = broke + "it reported another job, node rank, role, name or number of workers)";
  const std::string wait = "; waiting 3 s for it to come back";
  CHECK(said([](AgentState& s) { s.node_rank = -5; }) == changed + wait);
  CHECK(said([](AgentState& s) { s.slots = 2'000'000'000; }) == changed + wait);
  CHECK(said([](AgentState& s) { s.role = "x"; }) == changed + wait);
  CHECK(said([](AgentState& s) { s.job.max_nodes = 9; }) == changed + wait);
  CHECK(said([](AgentState& s) { s.epoch = "f"; }) == broke + "it reported another epoch)" + wait);
  CHECK(said([](AgentState& s) { s.round = 2; }) == broke + "it reported round 2, the newest is 1)" + wait);
  CHECK(said([](AgentState& s) { s.round = 0; }) == broke + "it went back to round 0)" + wait);
  CHECK(said([](AgentState& s) { s.failures.push_back({.rank = 0, .status = {.code = 1}}); }) ==
        broke + "it reported that rank 0 failed, which is not its own)" + wait);
  CHECK(said([](AgentState& s) { s.incarnation = "c"; }) == broke + "it reported as two agents)" + wait);
  CHECK(said([](AgentState&) {}).empty());

  DoubtedJob job;
  job.start();
  REQUIRE_FALSE(job.says(2, [](AgentState& s) { s.node_rank = 7; }).empty());
  job.says(3, [](AgentState&) {});
  CHECK(job.told(3).kind == Directive::Kind::Run);  // it is back
}

TEST_CASE("coordinator: no node has been in a round that is not open yet", "[rendezvous][unit]") {
  DoubtedJob job;
  job.report(2, job.on("b"));
  job.report(1, job.on("a"));
  REQUIRE(job.core.facts().phase == "opening");
  const auto is_done = [](AgentState& s) {
    s.phase = WorkersPhase::Idle;
    s.succeeded = s.left = true;
  };
  CHECK(job.says(2, is_done) ==
        "the link to node b (10.0.0.2) broke (it reported round 1, which is not open yet); waiting 3 s for it to come "
        "back");
  job.step(StoreOpened{1, "", 1});
  CHECK(job.told(1).kind == Directive::Kind::Run);
}

TEST_CASE("coordinator: no round opens without the coordinator's own node", "[rendezvous][unit]") {
  DoubtedJob job;
  job.report(2, job.on("b"));
  job.report(1, job.on("a", WorkersPhase::Stopping));
  CHECK(job.core.facts().phase == "gathering");
  job.report(1, job.on("a"));
  CHECK(job.core.facts().phase == "opening");
}

TEST_CASE("coordinator: a link that claims to be another node's does that node no harm", "[rendezvous][unit]") {
  DoubtedJob job;
  job.start();
  CHECK(job.says(3, [](AgentState& s) { s.slots = 7; }) ==
        "agent link: closed the one of node b (10.0.0.2): it reported another job, node rank, role, name or number of "
        "workers");
  CHECK(job.says(3, [](AgentState& s) { s.incarnation = "a"; }) ==
        "agent link: closed the one of node b (10.0.0.2): it reported as the coordinator's own agent");
  job.step(AgentBeat{2});
  CHECK(std::holds_alternative<AnswerBeat>(job.last.at(0)));
}

TEST_CASE("coordinator: nodes that wait have a limit", "[rendezvous][unit]") {
  DoubtedJob many;
  many.start();
  const int most = static_cast<int>(kMaxSpares) + many.shape.max_nodes;
  for (int i = 2; i < most; ++i) many.report(i + 10, many.on("spare" + std::to_string(i)));
  many.report(9999, many.on("one too many"));
  CHECK(many.told(9999).kind == Directive::Kind::Exit);
  CHECK(many.told(9999).why == Why::Failed);
}

TEST_CASE("coordinator: a node that beats and does not stop its workers is named, told to kill them, and lost",
          "[rendezvous][unit]") {
  SmallJob job(1, "10.0.0.2");
  job.core = CoordinatorCore(
      {.job = job.shape, .epoch = "e", .own_incarnation = "a", .last_call = seconds(0), .stops_within = seconds(40)});
  job.start();
  AgentState failed = job.on("a", WorkersPhase::Stopping);
  failed.failures = {{.rank = 0, .local_rank = 0, .host = "a", .pid = 7, .status = {.code = 3}}};
  job.report(1, failed);
  failed.phase = WorkersPhase::Idle;
  job.report(1, failed);
  const auto beat_for = [&job](seconds time) {
    std::string said;
    for (const TimePoint until = job.now + time; job.now < until; job.now += seconds(1)) {
      job.step(AgentBeat{2});
      job.step(CoordinatorTick{});
      for (const CoordinatorAction& action : job.last) {
        if (const auto* line = std::get_if<CoordinatorLogLine>(&action)) said += line->text + "; ";
      }
    }
    return said;
  };
  CHECK(beat_for(seconds(39)).empty());
  CHECK(job.told(2).stop_signal == SIGTERM);
  CHECK(beat_for(seconds(3)) == "waiting for node b (10.0.0.2) to stop workers of round 1; ");
  CHECK(beat_for(seconds(76)).empty());
  CHECK(job.told(2).stop_signal == SIGTERM);
  beat_for(seconds(4));
  CHECK(job.told(2).stop_signal == SIGKILL);
  CHECK(job.core.phase() == CoordinatorCore::Phase::Stopping);
  beat_for(seconds(31));
  CHECK(job.core.phase() != CoordinatorCore::Phase::Stopping);
}
