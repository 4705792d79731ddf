// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/spawn/spawn_core.hpp"

#include <csignal>
#include <cstring>

#include "rendezvous/base/signal_abbreviation.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::runtime {
namespace {

std::string describe_signal(int signal) {
  const std::string name = rendezvous::signal_name(signal);
  return rendezvous::signal_abbreviation(signal) != nullptr ? name + " (" + strsignal(signal) + ")" : name;
}

bool explains_nothing(const SpawnFailure& failure) {
  return failure.status == DDP_PEER_LOST || failure.status == DDP_ABORTED;
}

}  // namespace

std::optional<SpawnFailure> SpawnCore::failure_of(const Ending& ending) const {
  const std::string rank = "rank " + std::to_string(ending.rank) + " of " + std::to_string(is_left_.size());
  SpawnFailure failure = {ending.rank, ending.exit_code, ending.signal, DDP_SYSTEM, ""};
  if (ending.signal != 0) {
    failure.text = rank + " was killed by " + describe_signal(ending.signal);
  } else if (ending.report && ending.report->status != DDP_OK) {
    failure.status = ending.report->status;
    failure.text = rank + " failed: " + ending.report->text;
  } else if (ending.exit_code > 0) {
    failure.text = rank + " exited with code " + std::to_string(ending.exit_code);
  } else if (ending.report || ending.exit_code == 0) {
    return std::nullopt;
  } else {
    failure.text = rank + " ended in an unknown way: other code of this process has reaped it";
  }
  return failure;
}

SpawnCore::Actions SpawnCore::ended(const Ending& ending, Time now) {
  if (!is_left(ending.rank)) return {};
  is_left_[static_cast<std::size_t>(ending.rank)] = false;
  --left_;
  if (state_ == State::Running || state_ == State::Wondering) {
    const std::optional<SpawnFailure> failure = failure_of(ending);
    if (failure && (!failure_ || (explains_nothing(*failure_) && !explains_nothing(*failure)))) failure_ = failure;
    if (failure_ && (!explains_nothing(*failure_) || over())) return decide(now);
    if (failure_ && state_ == State::Running) {
      state_ = State::Wondering;
      deadline_ = now + kCauseWindow;
    }
  }  // else it was stopped: how it ended does not matter
  return {};
}

SpawnCore::Actions SpawnCore::stop(Time now) {
  if (over() || state_ == State::Stopping || state_ == State::Killed) return {};
  return decide(now);
}

SpawnCore::Actions SpawnCore::wake(Time now) {
  if (over() || now < deadline_) return {};
  if (state_ == State::Wondering) return decide(now);
  state_ = State::Killed;
  deadline_ = Time::max();
  return {SIGKILL, std::nullopt};
}

SpawnCore::Time SpawnCore::wake_at() const { return over() ? Time::max() : deadline_; }

SpawnCore::Actions SpawnCore::decide(Time now) {
  state_ = State::Stopping;
  deadline_ = now + grace_;
  if (over()) return {};
  return {SIGTERM, failure_};
}

}  // namespace ddp::runtime
