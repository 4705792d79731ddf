// SPDX-License-Identifier: BSD-3-Clause
// Decides what the ddprun on a host does about its job. Its stdin is its lifeline: ssh leaves what it has started alive
// when it is killed and when the head loses its power, so that end of file, and silence, are the end of the job.
//
//     a signal of the head's                   to the job
//     end of file, or no beat for too long     the job has to end, and gives its workers --shutdown-timeout
//     the job still runs 3 s after that        SIGKILL to the job
//     the job has ended                        its exit code to the head
//
// The job gets SIGTERM on the first host, which coordinates, and so ends on all hosts; on the others kHeadIsGone, so
// that this host alone is lost, and the head may start it again. Before the job's header comes there is no job, and the
// wait may be longer.
//
// It touches nothing: the time and an event go in, actions come out.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace ddp::launcher {

struct SignalJob {
  int signal;
  std::string why;  // for stderr; empty: the head has asked for it
};
struct ReportExit {
  int code;
};
struct LeaveHead {  // the head, if it is there, reads why, and is waited for no more
  std::string why;
};
struct GiveUp {  // there is no job
  std::string why;
};
using OnHostAction = std::variant<SignalJob, ReportExit, LeaveHead, GiveUp>;

class OnHostCore {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Actions = std::vector<OnHostAction>;

  static constexpr std::chrono::seconds kHeaderWithin{120};  // after the head's last word
  static constexpr std::chrono::seconds kLeastSilence{6};    // the head sends a beat every 2 s
  static constexpr std::chrono::seconds kBeyondTimeout{3};   // for what ddprun itself needs after --shutdown-timeout

  explicit OnHostCore(Time now) : last_beat_(now) {}

  // `end_signal` is how the job gets to know that the lifeline has ended, which it has after `silence` without a beat.
  void job_begins(std::chrono::seconds shutdown_timeout, std::chrono::seconds silence, int end_signal, Time now);
  void beat(Time now) { last_beat_ = now; }
  Actions signal(int number, Time now);
  Actions lifeline_ended(const std::string& how, Time now);
  Actions job_ended(int code);
  Actions tick(Time now);
  // Returns when tick() has something to do.
  std::optional<Time> due() const;

 private:
  std::optional<std::chrono::seconds> shutdown_timeout_;  // once there is a job
  std::chrono::seconds silence_ = kHeaderWithin;
  int end_signal_ = 0;  // once there is a job
  Time last_beat_;
  bool has_lifeline_ = true;
  std::optional<Time> kill_at_;  // once the lifeline has ended
  bool was_stopped_ = false;     // by a signal of the head's
  bool is_over_ = false;         // the job is
};

}  // namespace ddp::launcher
