// SPDX-License-Identifier: BSD-3-Clause
// Accepts a record, or tells why not. Everybody who may write where a job's record is may have written it: another
// version of ddprun, a disk that is full, a user of etcd. The parts of a record that are messages are accepted as such
// (link/accept.hpp); words for people are made printable.
#include <algorithm>
#include <initializer_list>

#include "rendezvous/coordinator/core/coordinator_core.hpp"
#include "rendezvous/coordinator/core/job_record.hpp"
#include "rendezvous/link/accept.hpp"
#include "rendezvous/link/check_message.hpp"

namespace ddp::rendezvous {
namespace {

constexpr std::int64_t kMostAge = 1'000'000'000'000;  // in ms; an age may be negative where a clock was set

void check_age(Check& check, const char* name, JobRecord::Age age) {
  check.in_range(name, age.count(), -kMostAge, kMostAge);
}

void make_lines(std::initializer_list<std::string*> lines) {
  for (std::string* const line : lines) make_line(*line);
}

Reason accept_numbers(JobRecord& r) {
  Check check;
  check.in_range("phase", r.phase, 0, static_cast<int>(CoordinatorCore::Phase::Over));
  const bool has_round = r.phase != static_cast<int>(CoordinatorCore::Phase::Gathering) && !r.exit;
  check.in_range("round", r.round, has_round ? 1 : 0, kMaxInt - 1);
  check.in_range("restarts", r.restarts, 0, kMaxInt - 1);
  check_age(check, "gathers_since", r.gathers_since.value_or(JobRecord::Age(0)));
  check_age(check, "gathers_for", r.gathers_for);
  check.in_range("stop.trigger", r.stop.trigger, 0, static_cast<int>(Trigger::Final));
  check.in_range("stop.exit_code", r.stop.exit_code, 0, kMaxExitCode);
  check.in_range("stop.signal", r.stop.signal, 0, kMaxNamedSignal);
  for (const int rank : r.stop.dead) check.in_range("stop.dead", rank, 0, kMaxInt);
  for (const JobRecord::Failure& f : r.failures) check_age(check, "failures.seen", f.seen);
  for (const JobRecord::Loss& l : r.losses) {
    check_age(check, "losses.noticed", l.noticed);
    check.in_range("losses.hang", l.hang, 0, static_cast<int>(Hang::End));
  }
  for (const JobRecord::Age age : r.spent) check_age(check, "spent", age);
  for (const auto& [name, count] : r.first_causes) check.in_range("first_causes", count, 0, kMaxInt - 1);
  for (const JobRecord::Member& m : r.members) {
    check_age(check, "members.heard", m.heard);
    check.in_range("members.slots", m.slots, m.incarnation.empty() ? 0 : 1, kMaxSlots);
  }
  return check.reason();
}

Reason accept_cause(std::optional<WorkerFailure>& cause) {
  if (!cause) return std::nullopt;
  Directive end{.kind = Directive::Kind::Exit, .epoch = "1"};
  end.exit_code = cause->status.shell_code();
  end.reason = "a worker failed";
  end.cause = cause;
  const Reason why = accept(end);
  cause = end.cause;
  return why;
}

// Accepts what each node has said of itself and of its workers. No two nodes, and no two failures of a worker, are one.
Reason accept_nodes(JobRecord& record) {
  std::map<std::string, AgentState> states;
  for (const JobRecord::Member& member : record.members) {
    if (member.incarnation.empty()) continue;
    if (!states.emplace(member.incarnation, state_of(member)).second) return "two members are one node";
  }
  for (const JobRecord::Failure& failure : record.failures) {
    AgentState gone{.incarnation = failure.node, .host = failure.failure.host, .slots = kMaxSlots};
    states.emplace(failure.node, std::move(gone)).first->second.failures.push_back(failure.failure);
  }
  for (auto& [incarnation, state] : states) {
    state.epoch = "1";
    state.round = 1;
    if (const Reason why = accept(state)) return why;
    std::reverse(state.failures.begin(), state.failures.end());  // to be taken from the end
  }
  if (record.phase == static_cast<int>(CoordinatorCore::Phase::Opening)) {
    const auto is_empty = [](const JobRecord::Member& member) { return member.incarnation.empty(); };
    if (std::any_of(record.members.begin(), record.members.end(), is_empty)) return "a round begins with an empty seat";
    const auto is_own = [&record](const JobRecord::Member& member) { return member.incarnation == record.own; };
    if (std::none_of(record.members.begin(), record.members.end(), is_own))
      return "a round begins without its coordinator's node";
  }
  for (JobRecord::Member& member : record.members) {
    if (!member.incarnation.empty()) member.host = states.at(member.incarnation).host;
    make_lines({&member.address, &member.arrived_at});
  }
  for (JobRecord::Failure& failure : record.failures) {
    failure.failure = states.at(failure.node).failures.back();
    states.at(failure.node).failures.pop_back();
    make_lines({&failure.name});
  }
  return std::nullopt;
}

// Accepts the directives that nodes have had: each member of a round that runs has a place in it.
Reason accept_directives(JobRecord& record) {
  using Phase = CoordinatorCore::Phase;
  const auto phase = static_cast<Phase>(record.phase);
  if ((phase == Phase::Running) != record.run.has_value()) return "its phase and run differ";
  if ((phase == Phase::Over) != record.exit.has_value()) return "its phase and exit differ";
  const bool ends = record.exit && record.exit->kind != Directive::Kind::Exit;
  if (ends || (record.before && record.before->exit.kind != Directive::Kind::Exit)) return "its end is none";
  if (record.run && record.run->kind != Directive::Kind::Run) return "its run is none";
  if (record.run) record.run = run_for({.role_world_size = 1}, 0, *record.run);  // places are the members'
  for (Directive* const told : {record.run ? &*record.run : nullptr, record.exit ? &*record.exit : nullptr,
                                record.before ? &record.before->exit : nullptr}) {
    if (const Reason why = told ? accept(*told) : std::nullopt) return why;
  }
  for (std::size_t i = 0; record.run && i < record.members.size(); ++i) {
    if (record.members[i].incarnation.empty()) continue;
    Directive place = run_for(record.members[i], i, *record.run);
    if (const Reason why = accept(place)) return why;
  }
  return std::nullopt;
}

}  // namespace

Reason accept(JobRecord& record) {
  for (const auto check : {accept_numbers, accept_nodes, accept_directives}) {
    if (const Reason why = check(record)) return why;
  }
  for (auto* const cause : {&record.cause, &record.stop.cause}) {
    if (const Reason why = accept_cause(*cause)) return why;
  }
  const bool is_stopping = record.phase == static_cast<int>(CoordinatorCore::Phase::Stopping);
  const bool is_failure = record.stop.trigger == static_cast<int>(Trigger::Failure);
  if (is_stopping && is_failure && record.failures.empty()) return "a failure of nobody";
  const bool is_final = record.stop.trigger == static_cast<int>(Trigger::Final);
  const int code = record.stop.cause ? record.stop.cause->status.shell_code() : record.stop.exit_code;
  if (is_stopping && is_final && (code == 0 || code != record.stop.exit_code)) return "its stop ends with a wrong code";
  make_lines({&record.instance, &record.node, &record.host, &record.own, &record.why_round, &record.who_makes_room,
              &record.stop.reason});
  for (JobRecord::Loss& loss : record.losses) make_lines({&loss.text, &loss.stopped_itself, &loss.name});
  return std::nullopt;
}

}  // namespace ddp::rendezvous
