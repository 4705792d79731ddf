// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer for the link's codec and an agent's core together. An input is a script: what a coordinator says, honest or
// not (lies and bytes pass the codec), what happens to the agent's two workers, its user and its link. After each step
// this must hold:
//   * Each report is one that a coordinator accepts, as it is.
//   * Workers are started only when none is left of the round before.
//   * The agent leaves with a code from 0 to 255; with 0 only if the workers that it started last have all succeeded.
//   * After a Tick the core asks for no other one at once.
#include <algorithm>
#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/agent/agent_core.hpp"
#include "rendezvous/base/check.hpp"
#include "rendezvous/link/accept.hpp"
#include "rendezvous/link/codec.hpp"
#include "tests/fuzz/agent_script.hpp"
#include "tests/fuzz/lies.hpp"

namespace ddp::fuzz {
namespace {

using namespace launcher;
using rendezvous::Directive;
using rendezvous::ExitStatus;
using rendezvous::TimePoint;
using std::chrono::milliseconds;

constexpr int kWorkers = 2;

class Run {
 public:
  explicit Run(Script& script) : script_(script), core_(config(script.byte())) {
    handle(Tick{});
    link_up();
  }

  bool has_left() const { return has_left_; }

  void step() {
    const unsigned head = script_.byte();
    switch (static_cast<AgentStep>(head & 15)) {
      case AgentStep::Say:
        return say(static_cast<Directive::Kind>(head >> 4 & 3), 0);
      case AgentStep::Lie:
        return say(static_cast<Directive::Kind>(head >> 4 & 3), 1 + (head >> 6));
      case AgentStep::Bytes:
        return feed(script_.bytes(script_.byte()));
      case AgentStep::NextRound:
        ++round_;
        return say(Directive::Kind::Run, 0);
      case AgentStep::Beat:
        return feed(rendezvous::encode(rendezvous::Heartbeat{}));
      case AgentStep::Cut:
        if (is_up_) {
          is_up_ = false;
          handle(LinkDown{"reset"});
        }
        return;
      case AgentStep::Up:
        if (!is_up_) link_up();
        return;
      case AgentStep::Wait:
        return wait(milliseconds(100) * (1 + script_.byte()));
      case AgentStep::Started:
        return started(head >> 4);
      case AgentStep::Exit:
        return worker_exits(head >> 4 & 1, {.code = head >> 5 & 1 ? 7 : 0, .signal = 0});
      case AgentStep::Crash:
        return worker_exits(head >> 4 & 1, {.code = 0, .signal = SIGKILL});
      case AgentStep::Dying:
        if (is_alive(head >> 4 & 1)) {
          handle(WorkerDying{static_cast<int>(head >> 4 & 1), {.code = 0, .signal = SIGSEGV}, {}, {}});
        }
        return;
      case AgentStep::Cleared:
        return cleared();
      case AgentStep::Signal:
        return handle(StopSignal{head >> 4 & 1 ? SIGINT : SIGTERM});
      case AgentStep::Guardian:
        return head >> 4 & 1 ? handle(HeadGone{}) : handle(GuardianGone{});
      case AgentStep::Refused:
        return handle(LinkRefused{"its secret differs"});
    }
  }

 private:
  static AgentConfig config(unsigned choice) {
    AgentConfig config;
    config.job = {
        .id = "job", .min_nodes = 1, .max_nodes = 2, .max_restarts = 1, .node_ranks_given = (choice & 1) != 0};
    config.incarnation = "n1";
    config.host = "n1";
    config.addresses = {"10.0.0.2"};
    config.node_rank = 1;
    config.workers = kWorkers;
    config.coordinator = choice & 2 ? "" : "10.0.0.1:29500";
    config.join_timeout = std::chrono::seconds(20);
    config.shutdown_timeout = std::chrono::seconds(5);
    return config;
  }

  void handle(const AgentEvent& event) {
    if (has_left_) return;
    std::vector<AgentAction> actions;
    core_.step(now_, event, actions);
    for (const AgentAction& action : actions) {
      std::visit([this](const auto& a) { carry_out(a); }, action);
    }
  }

  template <typename Action>
  void carry_out(const Action&) {}
  void carry_out(const StartWorkers&) {
    // Beside a process that is stuck in the kernel the next round may begin.
    DDP_CHECK(!core_.state().unkillable.empty() || (!is_starting_ && !is_alive(0) && !is_alive(1) && !is_clearing_));
    alive_[0] = alive_[1] = is_clearing_ = false;
    is_starting_ = true;
    has_started_ = true;
    all_succeeded_ = false;
  }
  void carry_out(const ClearDescendants&) { is_clearing_ = true; }
  void carry_out(const SendReport& action) {
    rendezvous::AgentState accepted = action.state;
    const auto why = rendezvous::accept(accepted);
    DDP_CHECK(!why, *why);
    DDP_CHECK(accepted == action.state);
  }
  void carry_out(const Reconnect&) { reconnects_ = true; }
  void carry_out(const Leave& action) {
    has_left_ = true;
    DDP_CHECK(action.exit_code >= 0 && action.exit_code <= 255, action.exit_code);
    // A round in which it was not, or a job that was over before it came, may have succeeded without it.
    const bool is_about_its_round = action.directive.round == assigned_round_;
    DDP_CHECK(action.exit_code != 0 || !has_started_ || !is_about_its_round || all_succeeded_);
  }

  void link_up() {
    is_up_ = true;
    decoder_ = {};
    handle(LinkUp{"10.0.0.1"});
  }

  void say(Directive::Kind kind, unsigned changes) {
    Directive directive;
    directive.kind = kind;
    directive.epoch = "epoch";
    directive.lost_after = std::chrono::seconds(6);
    directive.round = round_;
    directive.reason = "a reason";
    if (kind == Directive::Kind::Run) {
      directive.assignment = {.node_rank = 1,
                              .node_count = 2,
                              .base_rank = 2,
                              .world_size = 4,
                              .base_role_rank = 2,
                              .role_world_size = 4,
                              .max_restarts = 1,
                              .master_addr = "n0",
                              .master_port = 29500};
    }
    if (kind == Directive::Kind::Stop) directive.stop_signal = script_.byte() & 1 ? SIGKILL : SIGTERM;
    if (kind == Directive::Kind::Exit) directive.exit_code = script_.byte() & 1;
    for (unsigned n = 0; n < changes; ++n) change(directive, script_);
    if (changes > 0) return feed(rendezvous::encode(directive));
    if (!is_up_) return;
    obey(directive);
    after_message();
  }

  // Does what LinkStream, LinkClient and Agent do.
  void feed(std::string_view bytes) {
    if (!is_up_) return;
    decoder_.feed(bytes);
    while (is_up_ && !has_left_) {
      rendezvous::DecodedFrame next = decoder_.next();
      if (std::holds_alternative<rendezvous::NeedMore>(next)) return;
      if (auto* directive = std::get_if<Directive>(&next)) {
        obey(*directive);
      } else if (std::holds_alternative<rendezvous::Heartbeat>(next)) {
        handle(BeatArrived{});
      } else {
        is_up_ = false;
        handle(LinkDown{"nonsense"});
      }
    }
    after_message();
  }
  void obey(const Directive& directive) {
    const int round = core_.state().round;
    handle(DirectiveArrived{directive, {}});
    const bool starts = core_.state().round != round && core_.phase() == AgentCore::Phase::Starting;
    if (starts) assigned_round_ = core_.state().round;
  }
  void after_message() {
    if (!std::exchange(reconnects_, false) || !is_up_) return;
    is_up_ = false;
    handle(LinkDown{"silent"});
  }

  bool is_alive(unsigned worker) const { return alive_[worker]; }

  void started(unsigned choice) {
    if (!std::exchange(is_starting_, false)) return;
    if (choice % 4 == 1) return handle(NeverStarted{"no more processes"});
    if (choice % 4 == 2 && core_.phase() != AgentCore::Phase::Starting) return handle(NeverStarted{});
    alive_[0] = alive_[1] = true;
    is_clean_ = true;
    handle(WorkersStarted{{100, 101}});
  }

  void worker_exits(unsigned worker, ExitStatus status) {
    if (!alive_[worker]) return;
    alive_[worker] = false;
    is_clean_ = is_clean_ && status.success();
    handle(WorkerExited{static_cast<int>(worker), status, {}, "", {}, ""});
  }

  void cleared() {
    if (!std::exchange(is_clearing_, false)) return;
    all_succeeded_ = is_clean_;
    handle(AllGone{{{.message = "a message"}, {.stderr_tail = {"a line"}}}});
    if (core_.phase() == AgentCore::Phase::Starting) assigned_round_ = core_.state().round;
  }

  void wait(milliseconds time) {
    const TimePoint until = now_ + time;
    for (int ticks = 0; !has_left_ && core_.wake_at() && *core_.wake_at() <= until; ++ticks) {
      DDP_CHECK(ticks < 1000);
      now_ = std::max(now_, *core_.wake_at());
      handle(Tick{});
      after_message();
      if (core_.phase() == AgentCore::Phase::Idle) {
        alive_[0] = alive_[1] = false;
        is_clearing_ = is_starting_ = false;
      }
      DDP_CHECK(has_left_ || !core_.wake_at() || *core_.wake_at() > now_);
    }
    now_ = until;
  }

  Script& script_;
  AgentCore core_;
  rendezvous::FrameDecoder decoder_;
  TimePoint now_{std::chrono::seconds(1000)};
  int round_ = 1, assigned_round_ = 0;
  bool is_up_ = false, reconnects_ = false, has_left_ = false;
  bool alive_[kWorkers] = {false, false};
  bool is_starting_ = false, is_clearing_ = false, has_started_ = false, is_clean_ = false, all_succeeded_ = false;
};

}  // namespace
}  // namespace ddp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ddp::fuzz::Script script(data, size);
  ddp::fuzz::Run run(script);
  while (!script.ended() && !run.has_left()) run.step();
  return 0;
}
