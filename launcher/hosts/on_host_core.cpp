// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/on_host_core.hpp"

#include <csignal>

#include "rendezvous/base/text.hpp"

namespace ddp::launcher {

void OnHostCore::job_begins(std::chrono::seconds shutdown_timeout, std::chrono::seconds silence, int end_signal,
                            Time now) {
  shutdown_timeout_ = shutdown_timeout;
  silence_ = silence;
  end_signal_ = end_signal;
  last_beat_ = now;
}

OnHostCore::Actions OnHostCore::signal(int number, Time now) {
  last_beat_ = now;
  if (is_over_) return {};
  const bool ends_job = number != SIGUSR1 && number != SIGUSR2;
  if (!shutdown_timeout_) {
    return ends_job ? Actions{GiveUp{rendezvous::signal_name(number) + " before the header of a job"}} : Actions{};
  }
  if (ends_job) was_stopped_ = true;
  return {SignalJob{number, ""}};
}

OnHostCore::Actions OnHostCore::lifeline_ended(const std::string& how, Time now) {
  if (!has_lifeline_) return {};
  has_lifeline_ = false;
  if (!shutdown_timeout_) return {GiveUp{how}};
  if (is_over_) return {LeaveHead{how}};
  kill_at_ = now + *shutdown_timeout_ + kBeyondTimeout;
  // To a job that is stopping already, SIGTERM would mean that its workers are to be killed at once.
  if (was_stopped_) return {LeaveHead{how}};
  return {LeaveHead{how}, SignalJob{end_signal_, how + ": stopping this host's part of the job"}};
}

OnHostCore::Actions OnHostCore::job_ended(int code) {
  is_over_ = true;
  return {ReportExit{code}};
}

OnHostCore::Actions OnHostCore::tick(Time now) {
  if (!is_over_ && kill_at_ && now >= *kill_at_) {
    kill_at_ = now + kBeyondTimeout;
    return {SignalJob{SIGKILL, "the job still runs: killing it"}};
  }
  if (!has_lifeline_ || now < last_beat_ + silence_) return {};
  const std::string time = rendezvous::to_string(silence_);
  if (!shutdown_timeout_) return lifeline_ended("no header of a job within " + time, now);
  return lifeline_ended("no word from the head for " + time, now);
}

std::optional<OnHostCore::Time> OnHostCore::due() const {
  if (has_lifeline_) return last_beat_ + silence_;
  return is_over_ ? std::nullopt : kill_at_;
}

}  // namespace ddp::launcher
