// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/transcripts/transcript.hpp"

#include <array>
#include <csignal>

#include "rendezvous/base/text.hpp"
#include "tests/sim/event_queue.hpp"

namespace ddp::sim {

using namespace launcher;
using namespace rendezvous;

namespace {

constexpr std::size_t kWidthOfTime = 11, kWidthOfWho = 11;

std::string in_parentheses(const std::string& text) { return text.empty() ? "" : " (" + text + ")"; }
std::string after_colon(const std::string& text) { return text.empty() ? "" : ": " + text; }

// ---- Messages ----

// What an agent says in short, where it sends it: the coordinator's line, where it arrives, has the whole.
std::string describe_briefly(const AgentState& state) {
  static constexpr std::array<const char*, 4> kPhases = {"idle", "running", "stopping", "quiet"};
  std::string text = kPhases[static_cast<std::size_t>(state.phase)];
  text += state.round == 0 ? ", no round yet" : ", round " + std::to_string(state.round);
  if (state.succeeded) text += ", succeeded";
  const std::size_t failures = state.failures.size();
  if (failures > 0) text += ", " + std::to_string(failures) + (failures == 1 ? " failure" : " failures");
  return text + (state.left ? "; leaves" : "");
}

std::string describe(const AgentState& state) {
  std::string text = describe_briefly(state);
  if (state.left) return text;
  for (const WorkerFailure& failure : state.failures) {
    text += "; " + rendezvous::describe(failure);
    if (failure.stopped_by_ddprun) text += " (stopped by ddprun)";
    if (failure.already_exiting) text += " (was already exiting)";
  }
  if (!state.stopped_because.empty()) text += "; stopped its workers: " + state.stopped_because;
  if (state.stop_signal != 0) text += "; its user sent " + signal_name(state.stop_signal);
  if (!state.unkillable.empty()) text += "; has processes that cannot be killed";
  return text;
}

std::string describe(const Assignment& assignment) {
  const auto of = [](int first, int count) { return std::to_string(first) + " of " + std::to_string(count); };
  std::string text = "node rank " + of(assignment.node_rank, assignment.node_count) + ", workers from rank " +
                     of(assignment.base_rank, assignment.world_size);
  if (assignment.role_world_size != assignment.world_size) {
    text += ", from role rank " + of(assignment.base_role_rank, assignment.role_world_size);
  }
  return text + ", restart " + of(assignment.restart_count, assignment.max_restarts) + ", store port " +
         std::to_string(assignment.master_port);
}

std::string describe(const Directive& directive) {
  const std::string round = "round " + std::to_string(directive.round);
  switch (directive.kind) {
    case Directive::Kind::Wait:
      return "wait" + in_parentheses(directive.reason);
    case Directive::Kind::Run:
      return "run " + round + ", " + describe(directive.assignment) + in_parentheses(directive.reason);
    case Directive::Kind::Stop:
      return "stop " + round + " with " + signal_name(directive.stop_signal) +
             (directive.survivors_stay ? ", survivors stay" : "") + after_colon(directive.reason);
    case Directive::Kind::Exit:
      break;
  }
  std::string text = "exit with code " + std::to_string(directive.exit_code) + after_colon(directive.reason);
  if (directive.cause) text += "; cause: rank " + std::to_string(directive.cause->rank);
  std::vector<std::string> failures;
  for (const WorkerFailure& failure : directive.failures) failures.push_back(rendezvous::describe(failure));
  return text + (failures.empty() ? "" : "; all failures: " + list_of(failures, 16));
}

// ---- Agents ----

struct DescribeAgentEvent {
  std::string operator()(const LinkUp&) const { return "its link is up"; }
  std::string operator()(const LinkDown& event) const { return "its link breaks" + in_parentheses(event.why); }
  std::string operator()(const LinkFailed& event) const { return "gets no link" + in_parentheses(event.why); }
  std::string operator()(const LinkRefused& event) const { return "is refused a link" + in_parentheses(event.why); }
  std::string operator()(const CoordinatorNamed&) const { return "learns which node coordinates"; }
  std::string operator()(const BeatArrived&) const { return "a heartbeat arrives"; }
  std::string operator()(const DirectiveArrived& event) const {
    const Directive& directive = event.directive;
    static constexpr std::array<const char*, 4> kKinds = {"wait", "run", "stop", "exit"};
    return std::string("is told to ") + kKinds[static_cast<std::size_t>(directive.kind)] +
           (directive.kind == Directive::Kind::Run || directive.kind == Directive::Kind::Stop
                ? " round " + std::to_string(directive.round)
                : "");
  }
  std::string operator()(const WorkersStarted&) const { return "its workers run"; }
  std::string operator()(const NeverStarted& event) const {
    return event.why.empty() ? "its workers were stopped before they were started"
                             : "its workers could not be started" + in_parentheses(event.why);
  }
  std::string operator()(const WorkerDying& event) const {
    return "sees that worker " + std::to_string(event.local_rank) + " " + rendezvous::describe(event.status) +
           " and is not reaped yet";
  }
  std::string operator()(const WorkerExited& event) const {
    return "reaps worker " + std::to_string(event.local_rank) + ", which " + rendezvous::describe(event.status);
  }
  std::string operator()(const MissingStarted& event) const {
    return "another process has the place of worker " + std::to_string(event.local_rank);
  }
  std::string operator()(const WorkerStays& event) const {
    return "worker " + std::to_string(event.local_rank) + (event.stays ? " can stay" : " can stay no longer");
  }
  std::string operator()(const WorkerQuiet& event) const {
    return "worker " + std::to_string(event.local_rank) + " is quiet";
  }
  std::string operator()(const AllGone&) const { return "no process of the round is left"; }
  std::string operator()(const WordsRead& event) const {
    return "has read what its dead workers wrote (" + std::to_string(event.local_ranks.size()) + ")";
  }
  std::string operator()(const StopSignal& event) const { return "its user sends " + signal_name(event.signal); }
  std::string operator()(const HangFound& event) const { return "finds that its workers hang: " + event.why; }
  std::string operator()(const Suspend& event) const {
    return event.is_over ? "its user resumes the job" : "its user suspends the job";
  }
  std::string operator()(const GuardianGone&) const { return "its guardian is gone"; }
  std::string operator()(const HeadGone&) const { return "its head is out of reach"; }
  std::string operator()(const Tick&) const { return "its timer expires"; }
};

struct DescribeAgentAction {
  std::string operator()(const StartWorkers&) const { return "starts its workers"; }
  std::string operator()(const StartMissing& action) const {
    std::vector<std::string> missing;
    for (const int local_rank : action.local_ranks) missing.push_back(std::to_string(local_rank));
    return "begins the round with the workers that have stayed" +
           (missing.empty() ? "" : ", and starts worker " + list_of(missing, 16));
  }
  std::string operator()(const ReadWords&) const { return "reads what its dead workers wrote"; }
  std::string operator()(const RevokeRound&) const { return "shows its workers that the round is revoked"; }
  std::string operator()(const SignalWorker& action) const {
    const std::string worker = "worker " + std::to_string(action.local_rank);
    return action.signal == SIGKILL ? "kills " + worker : "sends " + signal_name(action.signal) + " to " + worker;
  }
  std::string operator()(const SignalWorkers& action) const {
    return "sends " + signal_name(action.signal) + " to its workers";
  }
  std::string operator()(const SuspendWorkers& action) const {
    return action.is_over ? "resumes its workers" : "suspends its workers";
  }
  std::string operator()(const KillDescendants&) const { return "kills all processes below it"; }
  std::string operator()(const KillLeftovers& action) const {
    return "kills what worker " + std::to_string(action.local_rank) + " left";
  }
  std::string operator()(const ClearDescendants&) const { return "waits for what its workers left, and reaps it"; }
  std::string operator()(const SendReport& action) const { return "reports: " + describe_briefly(action.state); }
  std::string operator()(const SendHeartbeat&) const { return ""; }
  std::string operator()(const SetDeadman&) const { return ""; }
  std::string operator()(const Reconnect& action) const { return "drops its link" + in_parentheses(action.why); }
  std::string operator()(const LogLine& action) const { return "logs: " + action.text; }
  std::string operator()(const Leave& action) const {
    return "leaves with exit code " + std::to_string(action.exit_code) + after_colon(action.directive.reason);
  }
};

bool is_routine(const AgentEvent& event) {
  return std::holds_alternative<BeatArrived>(event) || std::holds_alternative<Tick>(event);
}

// ---- The coordinator ----

struct DescribeCoordinatorEvent {
  const Transcript::HostOf& host_of;

  std::string link(AgentId agent) const { return "link " + std::to_string(agent) + " to " + host_of(agent); }
  std::string operator()(const AgentLinked&) const { return ""; }  // the agent's side says so
  std::string operator()(const AgentReported& event) const {
    return event.state.host + " reports on link " + std::to_string(event.agent) + ": " + describe(event.state);
  }
  std::string operator()(const AgentBeat& event) const { return "a heartbeat arrives on " + link(event.agent); }
  std::string operator()(const AgentGone& event) const {
    return link(event.agent) + " breaks" + in_parentheses(event.why);
  }
  std::string operator()(const StoreOpened& event) const {
    return "the store of round " + std::to_string(event.round) +
           (event.why_not.empty() ? " is open" : " could not be opened") + in_parentheses(event.why_not);
  }
  std::string operator()(const CoordinatorTick&) const { return "its timer expires"; }
  std::string operator()(const Recovered& event) const {
    if (!event.record) return "finds no record";
    return "goes on with what its journal has: round " + std::to_string(event.record->round) + ", restarts " +
           std::to_string(event.record->restarts);
  }
  std::string operator()(const StoreLost& event) const { return "the store is lost" + in_parentheses(event.why); }
};

struct DescribeCoordinatorAction {
  const Transcript::HostOf& host_of;

  std::string operator()(const SendDirective& action) const {
    return "tells " + host_of(action.agent) + ": " + describe(action.directive);
  }
  std::string operator()(const AnswerBeat&) const { return ""; }
  std::string operator()(const CloseLink& action) const {
    return "closes link " + std::to_string(action.agent) + " to " + host_of(action.agent);
  }
  std::string operator()(const OpenStore& action) const {
    return "opens an empty store for round " + std::to_string(action.round);
  }
  std::string operator()(const PublishFailure& action) const {
    std::vector<std::string> ranks;
    for (const int rank : action.ranks) ranks.push_back(std::to_string(rank));
    return "publishes in the store: " + (ranks.empty() ? "no dead ranks" : "dead ranks: " + list_of(ranks, 16)) +
           in_parentheses(action.text);
  }
  std::string operator()(const CoordinatorLogLine& action) const { return "logs: " + action.text; }
  std::string operator()(const RecordNode&) const { return ""; }
  std::string operator()(const Record& action) const {
    return "records this as number " + std::to_string(action.number);
  }
  std::string operator()(const JobDone& action) const {
    return action.may_be_forgotten ? "removes the record, and ends" : "ends";
  }
  std::string operator()(const StepDown&) const { return "ends, so that another node coordinates"; }
};

bool is_routine(const CoordinatorEvent& event) {
  return std::holds_alternative<AgentLinked>(event) || std::holds_alternative<AgentBeat>(event) ||
         std::holds_alternative<CoordinatorTick>(event);
}

}  // namespace

void Transcript::note(Time now, const std::string& who, const std::string& what) {
  add_step(now, who, what, {}, false);
}

void Transcript::step(Time now, const std::string& host, const AgentEvent& event,
                      const std::vector<AgentAction>& actions) {
  std::vector<std::string> texts;
  for (const AgentAction& action : actions) texts.push_back(std::visit(DescribeAgentAction(), action));
  add_step(now, host, std::visit(DescribeAgentEvent(), event), texts, is_routine(event));
}

void Transcript::step(Time now, const std::string& who, const CoordinatorEvent& event,
                      const std::vector<CoordinatorAction>& actions, const HostOf& host_of) {
  std::vector<std::string> texts;
  for (const CoordinatorAction& action : actions) {
    texts.push_back(std::visit(DescribeCoordinatorAction{host_of}, action));
  }
  add_step(now, who, std::visit(DescribeCoordinatorEvent{host_of}, event), texts, is_routine(event));
}

// An action without text is a heartbeat, or the deadman that is set at each answer to one.
void Transcript::add_step(Time now, const std::string& who, const std::string& event,
                          const std::vector<std::string>& actions, bool is_routine) {
  std::vector<std::string> told;
  for (const std::string& action : actions) {
    if (!action.empty()) told.push_back(std::string(kWidthOfTime + kWidthOfWho + 6, ' ') + action);
  }
  if ((is_routine && told.empty()) || now < kStart + from_) return;
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(now - kStart).count();
  std::string fraction = std::to_string(us % 1000000 + 1000000).substr(1);
  if (resolution_ == Resolution::Milliseconds) fraction.resize(3);
  const std::string time = std::to_string(us / 1000000) + "." + fraction;
  const auto blanks = [](std::size_t width, const std::string& text) {
    return std::string(text.size() < width ? width - text.size() : 0, ' ');
  };
  lines_.push_back(blanks(kWidthOfTime, time) + time + "  " + who + blanks(kWidthOfWho, who) + "  " + event);
  lines_.insert(lines_.end(), told.begin(), told.end());
}

}  // namespace ddp::sim
