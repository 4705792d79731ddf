// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator_core.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <tuple>

namespace ddp::rendezvous {

namespace {

bool is_idle(const AgentState& state, int round) { return state.phase == WorkersPhase::Idle && state.round == round; }
bool has_succeeded(const AgentState& state, int round) { return is_idle(state, round) && state.succeeded; }

std::string signal_name(int signal) { return std::string("SIG") + sigabbrev_np(signal); }

}  // namespace

const WorkerFailure* cause_of(const std::vector<WorkerFailure>& failures) {
  if (failures.empty()) return nullptr;
  const auto earliest =
      std::min_element(failures.begin(), failures.end(), [](const auto& a, const auto& b) { return a.time < b.time; });
  const auto order = [&](const WorkerFailure& f) {
    const bool at_once = f.already_exiting && f.host == earliest->host;
    return std::tuple(f.stopped_by_ddprun, !(at_once && f.status.signal != 0), f.time);
  };
  return &*std::min_element(failures.begin(), failures.end(),
                            [&](const auto& a, const auto& b) { return order(a) < order(b); });
}

void CoordinatorCore::step(const CoordinatorEvent& event, std::vector<CoordinatorAction>& actions) {
  actions_ = &actions;
  std::visit([this](const auto& e) { on(e); }, event);
  actions_ = nullptr;
}

void CoordinatorCore::on(const AgentReported& event) {
  const bool is_new = agents_.insert_or_assign(event.agent, event.state).second;
  if (is_new) send(event.agent, Directive{});  // a level-triggered link answers every connect
  advance();
}

void CoordinatorCore::on(const AgentGone& event) {
  const auto gone = agents_.find(event.agent);
  if (gone == agents_.end()) return;  // it never said who it was
  const std::string host = gone->second.host;
  agents_.erase(gone);
  directives_.erase(event.agent);
  if (phase_ == Phase::Opening || phase_ == Phase::Running) {
    stop_round(SIGTERM, {.restart = false, .exit_code = 1, .reason = "the agent on node " + host + " is gone"},
               "the agent on node " + host + " is gone");
  }
  advance();
}

void CoordinatorCore::on(const StoreOpened& event) {
  if (phase_ != Phase::Opening || event.round != round_) return;  // the job was stopped meanwhile
  phase_ = Phase::Running;
  int world_size = 0;
  for (const auto& [id, state] : agents_) world_size += state.slots;
  // Node ranks as the agents gave them; agents_ is ordered by arrival, so sort.
  std::vector<std::pair<int, AgentId>> order;
  for (const auto& [id, state] : agents_) order.emplace_back(state.node_rank, id);
  std::sort(order.begin(), order.end());
  int base_rank = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    Directive run;
    run.kind = Directive::Kind::Run;
    run.round = round_;
    run.assignment = {.node_rank = static_cast<int>(i),
                      .node_count = static_cast<int>(order.size()),
                      .base_rank = base_rank,
                      .world_size = world_size,
                      .restart_count = restarts_,
                      .max_restarts = config_.max_restarts,
                      .master_addr = event.address,
                      .master_port = event.port};
    if (restarts_ > 0) {
      run.cause = cause_;
      run.reason = "restart " + std::to_string(restarts_) + " of " + std::to_string(config_.max_restarts) + ": " +
                   in_words(*cause_);
    }
    send(order[i].second, run);
    base_rank += agents_.at(order[i].second).slots;
  }
}

// Looks at where everybody is and takes the next step, if there is one.
void CoordinatorCore::advance() {
  const auto wish = std::find_if(agents_.begin(), agents_.end(), [](const auto& a) { return a.second.stop_signal; });
  if (wish != agents_.end() && phase_ != Phase::Over && !(phase_ == Phase::Stopping && !ending_.restart)) {
    const int signal = wish->second.stop_signal;
    const std::string reason = signal_name(signal) + " received on node " + wish->second.host;
    stop_round(signal, {.restart = false, .exit_code = 128 + signal, .reason = reason}, reason);
  }
  switch (phase_) {
    case Phase::Joining:
      if (static_cast<int>(agents_.size()) == config_.nodes) open_next_round();
      break;
    case Phase::Opening:
    case Phase::Over:
      break;
    case Phase::Running:
      if (!failures().empty()) {
        stop_for_failure();
        advance();
      } else if (all_agents(has_succeeded)) {
        finish({.kind = Directive::Kind::Exit, .round = round_, .reason = "all workers exited with code 0"});
      }
      break;
    case Phase::Stopping: {
      if (!all_agents(is_idle)) break;
      const std::vector<WorkerFailure> all = failures();
      // Asked again now that all is known: the dying were reaped, their error files and last words read.
      const WorkerFailure* cause = cause_of(all);
      if (cause && !cause->stopped_by_ddprun) cause_ = *cause;
      const bool unkillable =
          std::any_of(agents_.begin(), agents_.end(), [](const auto& a) { return !a.second.unkillable.empty(); });
      if (ending_.restart && !unkillable) {
        ++restarts_;
        open_next_round();
        break;
      }
      Directive exit{.kind = Directive::Kind::Exit, .round = round_};
      exit.failures = all;
      if (ending_.reason.empty()) {
        exit.cause = cause_;
        exit.exit_code = cause_->status.shell_code();
        exit.reason = in_words(*cause_);
        if (ending_.restart) exit.reason += "; not restarted, since not all processes could be killed";
      } else {
        exit.exit_code = ending_.exit_code;
        exit.reason = ending_.reason;
      }
      finish(exit);
      break;
    }
  }
}

void CoordinatorCore::open_next_round() {
  ++round_;
  phase_ = Phase::Opening;
  ending_ = {};
  actions_->push_back(OpenStore{round_});
}

void CoordinatorCore::stop_for_failure() {
  const std::vector<WorkerFailure> known = failures();
  cause_ = *cause_of(known);
  actions_->push_back(PublishFailure{in_words(*cause_)});
  stop_round(SIGTERM, {.restart = restarts_ < config_.max_restarts}, in_words(*cause_));
}

void CoordinatorCore::stop_round(int signal, Ending ending, std::string reason) {
  phase_ = Phase::Stopping;
  ending_ = std::move(ending);
  send_all({.kind = Directive::Kind::Stop, .round = round_, .stop_signal = signal, .reason = std::move(reason)});
}

void CoordinatorCore::finish(const Directive& exit) {
  phase_ = Phase::Over;
  send_all(exit);
}

void CoordinatorCore::send_all(const Directive& directive) {
  for (const auto& [id, state] : agents_) send(id, directive);
}

void CoordinatorCore::send(AgentId agent, Directive directive) {
  directives_[agent] = directive;
  actions_->push_back(SendDirective{agent, std::move(directive)});
}

std::vector<WorkerFailure> CoordinatorCore::failures() const {
  std::vector<WorkerFailure> all;
  for (const auto& [id, state] : agents_) {
    if (state.round == round_) all.insert(all.end(), state.failures.begin(), state.failures.end());
  }
  return all;
}

bool CoordinatorCore::all_agents(bool (*condition)(const AgentState&, int round)) const {
  return std::all_of(agents_.begin(), agents_.end(),
                     [&](const auto& agent) { return condition(agent.second, round_); });
}

}  // namespace ddp::rendezvous
