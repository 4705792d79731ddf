// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/on_host_core.hpp"

#include <csignal>

#include "rendezvous/base/text.hpp"

namespace ddp::launcher {

OnHostCore::Actions OnHostCore::signal(int number, Time now) {
  if (is_over_) return {};
  last_beat_ = now;
  if (number != SIGUSR1 && number != SIGUSR2) was_stopped_ = true;
  return {SignalJob{number, ""}};
}

OnHostCore::Actions OnHostCore::lifeline_ended(const std::string& how, Time now) {
  if (is_over_ || kill_at_) return {};
  kill_at_ = now + shutdown_timeout_ + kBeyondTimeout;
  // To a job that is stopping already, SIGTERM would mean that its workers are to be killed at once.
  if (was_stopped_) return {};
  return {SignalJob{SIGTERM, how + ": stopping this host's part of the job"}};
}

OnHostCore::Actions OnHostCore::job_ended(int code) {
  is_over_ = true;
  return {ReportExit{code}};
}

OnHostCore::Actions OnHostCore::tick(Time now) {
  if (is_over_) return {};
  if (kill_at_ && now >= *kill_at_) {
    kill_at_ = now + kBeyondTimeout;
    return {SignalJob{SIGKILL, "the job still runs: killing it"}};
  }
  if (kill_at_ || now < last_beat_ + kSilence) return {};
  return lifeline_ended("no word from the head for " + rendezvous::to_string(kSilence), now);
}

std::optional<OnHostCore::Time> OnHostCore::due() const {
  if (is_over_) return std::nullopt;
  return kill_at_ ? *kill_at_ : last_beat_ + kSilence;
}

}  // namespace ddp::launcher
