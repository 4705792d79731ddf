// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>
#include <csignal>
#include <functional>
#include <optional>
#include <variant>

#include "rendezvous/coordinator/core/coordinator_core.hpp"
#include "rendezvous/coordinator/record_gate.hpp"
#include "tests/rendezvous/coordinator/small_job.hpp"

using namespace ddp::rendezvous;
using std::chrono::seconds;

namespace {

CoordinatorConfig apart(const JobShape& shape) {
  return {.job = shape, .epoch = "e", .own_is_here = false, .keeps_record = true, .last_call = seconds(0)};
}

// An elastic job whose coordinator is in a process of its own, and may be killed.
struct MortalJob : SmallJob {
  explicit MortalJob(int max_restarts) : SmallJob(max_restarts, "10.0.0.2") { core = CoordinatorCore(apart(shape)); }

  void die_and_recover() {
    const JobRecord left = record();
    core = CoordinatorCore(apart(shape));
    actions.clear();
    step(Recovered{left, seconds(0)});
  }
  void report_again(AgentId link, const std::string& host, WorkersPhase phase) {
    AgentState state = on(host, phase);
    state.epoch = "e";
    report(link, state);
  }
};

}  // namespace

TEST_CASE("recovery: a decision is recorded before it is sent", "[rendezvous][unit]") {
  MortalJob job(1);
  job.start();
  REQUIRE(std::holds_alternative<Record>(job.actions.front()));
  bool is_recorded = false;
  for (const CoordinatorAction& action : job.actions) {
    is_recorded = is_recorded || std::holds_alternative<Record>(action);
    if (std::holds_alternative<OpenStore>(action)) CHECK(is_recorded);
  }
  CHECK(job.record().round == 1);
  CHECK(job.record().run);
}

TEST_CASE("recovery: nodes that come back hear the same Run, and nothing is stopped", "[rendezvous][unit]") {
  MortalJob job(1);
  job.start();
  const Directive before = job.told(2);
  job.die_and_recover();
  job.report_again(3, "b", WorkersPhase::Running);
  job.report_again(4, "a", WorkersPhase::Running);
  CHECK(job.told(3) == before);
  job.wait(seconds(10));
  CHECK(job.core.phase() == CoordinatorCore::Phase::Running);
  CHECK(job.core.round() == 1);
}

TEST_CASE("recovery: where nodes have ranks of their own, a node's rank is its seat, whatever the record says",
          "[rendezvous][unit]") {
  MortalJob job(1);
  job.start();
  const JobRecord left = job.record();
  REQUIRE(left.members[1].node_rank == left.members[0].node_rank);
  job.shape.node_ranks_given = true;
  job.core = CoordinatorCore(apart(job.shape));
  job.step(Recovered{left, seconds(0)});
  AgentState b = job.on("b", WorkersPhase::Running);
  b.node_rank = 1;
  b.epoch = "e";
  job.report(3, b);
  CHECK(job.told(3).kind == Directive::Kind::Run);
}

TEST_CASE("recovery: a node that does not come back is lost", "[rendezvous][unit]") {
  MortalJob job(1);
  job.start();
  job.die_and_recover();
  job.report_again(4, "a", WorkersPhase::Running);
  const auto keep_a_alive = [&](seconds time) {
    for (seconds done(0); done < time; done += seconds(1)) {
      job.wait(seconds(1));
      job.step(AgentBeat{4});
    }
  };
  // Its agent may not have seen that the link broke, and keeps its workers until its lease ends.
  keep_a_alive(seconds(10));
  CHECK(job.core.phase() == CoordinatorCore::Phase::Running);
  keep_a_alive(seconds(2));
  CHECK(job.core.phase() == CoordinatorCore::Phase::Stopping);
  CHECK(job.told(4).why == Why::NodeLost);
}

TEST_CASE("recovery: the restart budget goes on as it was", "[rendezvous][unit]") {
  MortalJob job(1);
  job.start();
  AgentState failed = job.on("b", WorkersPhase::Idle);
  failed.failures = {{.rank = 1, .local_rank = 0, .host = "b", .pid = 7, .status = {.code = 3}}};
  job.report(2, failed);
  job.report(1, job.on("a"));
  CHECK(job.core.restarts() == 1);
  job.die_and_recover();
  CHECK(job.core.restarts() == 1);
  CHECK(job.core.budget_used() == 1);
}

TEST_CASE("recovery: a stop and its cause are sent again", "[rendezvous][unit]") {
  MortalJob job(1);
  job.start();
  AgentState failed = job.on("b", WorkersPhase::Stopping);
  failed.failures = {{.rank = 1, .local_rank = 0, .host = "b", .pid = 7, .status = {.code = 3}}};
  job.report(2, failed);
  const Directive before = job.told(1);
  REQUIRE(before.kind == Directive::Kind::Stop);
  job.die_and_recover();
  job.report_again(3, "a", WorkersPhase::Running);
  CHECK(job.told(3) == before);
}

TEST_CASE("recovery: another agent of the coordinator's node takes the place of one that was killed",
          "[rendezvous][unit]") {
  MortalJob job(1);
  job.start();
  AgentState next = job.on("a");
  next.incarnation = "a2";
  next.round = 0;
  job.report(5, next);
  CHECK(job.core.phase() == CoordinatorCore::Phase::Stopping);
  CHECK(job.told(2).why == Why::NodeLeft);
  job.report(2, job.on("b"));
  CHECK(job.core.round() == 2);
  job.step(StoreOpened{2, "", 1});
  CHECK(job.told(5).assignment.node_rank == 0);
}

TEST_CASE("recovery: a record of another version is refused", "[rendezvous][unit]") {
  const auto read = decode_record("{\"version\":2}");
  REQUIRE(std::holds_alternative<std::string>(read));
  CHECK(std::get<std::string>(read) == "version 2, this ddprun reads 1");
  CHECK(std::holds_alternative<std::string>(decode_record("no JSON")));
}

TEST_CASE("recovery: a record that cannot be true is refused, and its words are printable", "[rendezvous][unit]") {
  MortalJob job(1);
  job.start();
  const JobRecord running = job.record();
  AgentState failed = job.on("b", WorkersPhase::Stopping);
  failed.failures = {{.rank = 1, .local_rank = 0, .host = "b", .pid = 7, .status = {.code = 3}}};
  job.report(2, failed);
  const JobRecord stopping = job.record();
  const auto why = [](JobRecord record, const std::function<void(JobRecord&)>& lie) {
    lie(record);
    const auto read = decode_record(encode(record));
    const auto* const refused = std::get_if<std::string>(&read);
    return refused ? *refused : "";
  };
  CHECK(why(running, [](JobRecord&) {}).empty());
  CHECK(why(stopping, [](JobRecord&) {}).empty());
  CHECK(why(running, [](JobRecord& r) { r.phase = 99; }) == "phase is 99");
  CHECK(why(running, [](JobRecord& r) { r.phase = 4; }) == "its phase and run differ");
  CHECK(why(stopping, [](JobRecord& r) { r.phase = 4; }) == "its phase and exit differ");
  CHECK(why(stopping, [](JobRecord& r) { r.failures.clear(); }) == "a failure of nobody");
  CHECK(why(running, [](JobRecord& r) { r.members.push_back(r.members[0]); }) == "two members are one node");
  CHECK(why(stopping, [](JobRecord& r) { r.failures.push_back(r.failures[0]); }) == "two failures of local rank 0");
  CHECK(why(running, [](JobRecord& r) { r.members[1].addresses = {"elsewhere"}; }) == "addresses is no address");
  CHECK(why(running, [](JobRecord& r) { r.members[1].base_rank = 7; }) == "base_rank is 7");
  CHECK(why(running, [](JobRecord& r) { r.members[1].slots = 0; }) == "members.slots is 0");
  CHECK(why(running, [](JobRecord& r) { r.spent = {JobRecord::Age::max()}; }) == "spent is 9223372036854775807");
  JobRecord told_to_end = stopping;
  told_to_end.stop.trigger = static_cast<int>(Trigger::Final);
  told_to_end.stop.cause.reset();
  CHECK(why(told_to_end, [](JobRecord& r) { r.stop.exit_code = 143; }).empty());
  CHECK(why(told_to_end, [](JobRecord& r) { r.stop.exit_code = 0; }) == "its stop ends with a wrong code");
  JobRecord opening = running;
  opening.phase = static_cast<int>(CoordinatorCore::Phase::Opening);
  opening.run.reset();
  CHECK(why(opening, [](JobRecord&) {}).empty());
  CHECK(why(opening, [](JobRecord& r) { r.members[1] = {}; }) == "a round begins with an empty seat");
  CHECK(why(opening, [](JobRecord& r) { r.own = "z"; }) == "a round begins without its coordinator's node");

  JobRecord odd = stopping;
  odd.host = odd.why_round = odd.stop.reason = "\x1b]0;title\x07";
  odd.losses.push_back({.text = "\x1b[2J"});
  const auto read = decode_record(encode(odd));
  REQUIRE(std::holds_alternative<JobRecord>(read));
  const auto& tame = std::get<JobRecord>(read);
  for (const std::string& text : {tame.host, tame.why_round, tame.stop.reason, tame.losses[0].text}) {
    CHECK(text.find('\x1b') == std::string::npos);
  }
}

TEST_CASE("recovery: a store that is lost ends a round only if workers were connected", "[rendezvous][unit]") {
  MortalJob job(1);
  job.start();
  job.step(StoreLost{0, "ddp-store (pid 7) was killed by SIGKILL"});
  CHECK(job.core.phase() == CoordinatorCore::Phase::Running);
  job.step(StoreLost{2, "ddp-store (pid 7) was killed by SIGKILL"});
  CHECK(job.core.phase() == CoordinatorCore::Phase::Stopping);
  CHECK(job.told(1).why == Why::StoreLost);
}

namespace {

// Takes all that the gate lets pass now.
std::vector<CoordinatorAction> due_of(RecordGate& gate, bool may_tell = true) {
  std::vector<CoordinatorAction> due;
  while (auto action = gate.next(may_tell)) due.push_back(std::move(*action));
  return due;
}

}  // namespace

TEST_CASE("record gate: what follows a record waits until it is kept, but for heartbeats and the ends of links",
          "[rendezvous][unit]") {
  RecordGate gate;
  gate.take(Record{1, "one"});
  gate.take(OpenStore{5, {}});
  gate.take(AnswerBeat{6});
  gate.take(CloseLink{6});
  gate.take(Record{2, "two"});
  gate.take(OpenStore{7, {}});
  auto due = due_of(gate);
  REQUIRE(due.size() == 4);
  CHECK(std::holds_alternative<CloseLink>(due[1]));
  CHECK(std::holds_alternative<AnswerBeat>(due[3]));
  gate.kept(1);
  due = due_of(gate);
  REQUIRE(due.size() == 1);
  CHECK(std::get<OpenStore>(due[0]).round == 5);
  gate.kept(2);
  CHECK(due_of(gate).size() == 1);
  CHECK(gate.held() == 0);
}

TEST_CASE("record gate: while another may have the job records are written and nothing is sent", "[rendezvous][unit]") {
  RecordGate gate;
  gate.take(AnswerBeat{6});
  gate.take(Record{1, "one"});
  gate.take(OpenStore{5, {}});
  gate.take(CoordinatorLogLine{"a stranger", true});
  CHECK(due_of(gate, false).size() == 2);  // the record, and the line about a stranger
  gate.kept(1);
  CHECK(due_of(gate, false).empty());
  CHECK(gate.held() == 2);
  const auto due = due_of(gate);
  REQUIRE(due.size() == 2);
  CHECK(std::holds_alternative<AnswerBeat>(due[0]));
}
