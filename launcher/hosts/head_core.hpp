// SPDX-License-Identifier: BSD-3-Clause
// Decides what the head does: the ddprun that the user started for all hosts. A link is the launch agent (ssh) of a
// host with the ddprun at its other end. At most kWindow hosts are connecting at a time; one that is ready makes room
// for another.
//
//     connecting ──ready──▶ ready ──all are ready──▶ running ──exit code──▶ ended
//         ▲  │                │                         │  │
//         │  └─ the link ends, or the host says that it cannot ──▶ lost
//         ├── the link ends ──┘ (before all are ready, once)
//         └── the link ends, and there may be a restart ──┘
//
// No host begins before all are ready, so that a host which cannot be reached costs no other a line. Of hosts that
// cannot be reached, those that are found out within a second are named together. A host that is ready and then cannot
// begin, such as one without the job's folder, ends the start for all.
//
// A host that is lost while the job runs:
//
//     without --max-restarts, and the first host       the job ends: the others get SIGTERM, and their workers
//                                                      --shutdown-timeout
//     else                                             it is started again, and begins its part at once. The
//                                                      coordinator, which loses the node by itself, decides whether a
//                                                      restart is left, and for how long the others wait. So the host
//                                                      is tried every 5 s until then
//     the first host has ended, a signal ends the job  who is not back is needed no more
//
// The job's exit code is 75 if a lost host ends it; else the code of the first host which cannot begin; else the code
// of the first node, which coordinates; where that code is 0, the first code that is not 0. The end of a host whose
// connection was closed here counts only if no other host has failed before.
//
// It touches nothing: the time and an event go in, actions come out.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/hosts/wire/messages.hpp"

namespace ddp::launcher {

// Starts their launch agents.
struct StartHosts {
  std::vector<std::size_t> hosts;
};
// Node rank 0 and the address at which the others find it.
struct StartAll {
  std::string master_addr;
  std::uint16_t master_port;
};
// To a host that was started again while the job runs.
struct StartOne {
  std::size_t host;
  std::string master_addr;
  std::uint16_t master_port;
};
struct SignalHosts {
  int signal;
  std::vector<std::size_t> hosts;  // none: all
};
struct KillLink {
  std::size_t host;
};
struct EndLines {  // what comes from the host from now on is another process's
  std::size_t host;
};
struct CutLinks {  // closes the stdin of all links, which ends what is behind them
};
struct KillLinks {  // all of them
  int signal;
};
struct SayLine {
  std::string text;
};
struct EndHead {
  int code;
  bool has_started = false;  // all hosts were told to begin
  std::string cause = {};    // the host that ended the job, and how; empty: none was lost, and all have begun
};
using HeadAction = std::variant<StartHosts, StartAll, StartOne, SignalHosts, CutLinks, KillLinks, KillLink, EndLines,
                                SayLine, EndHead>;

class HeadCore {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Actions = std::vector<HeadAction>;

  struct HostInfo {
    std::string name;
    bool is_local = false;  // without a launch agent
  };
  struct Settings {
    std::vector<HostInfo> hosts;
    std::string master_addr = {};                 // as the user gave it; empty: the first host's own
    std::uint16_t master_port = 0;                // 0: a free one there
    std::vector<std::string> own_addresses = {};  // numeric, this machine's; empty: unknown
    std::chrono::seconds shutdown_timeout{30};
    bool may_restart = false;  // --max-restarts
  };

  static constexpr std::size_t kWindow = 64;                // hosts that are connecting at a time
  static constexpr std::chrono::seconds kReadyWithin{60};   // without a word or a byte taken
  static constexpr std::chrono::seconds kReadyAtMost{600};  // from when it was started
  static constexpr std::chrono::seconds kReachWithin{20};   // as kReadyWithin, while the job runs
  static constexpr std::chrono::seconds kTellAfter{10};     // whom the job waits for
  static constexpr std::chrono::seconds kBeyondTimeout{10};
  static constexpr std::chrono::seconds kAfterCut{5};
  static constexpr std::chrono::seconds kAfterCutBeforeStart{1};  // where nothing has to end but launch agents
  static constexpr std::chrono::seconds kAfterTerm{5};            // in which srun gives nodes back
  static constexpr std::chrono::seconds kOthersMayFail{1};        // to be named too, before the job is given up
  static constexpr std::chrono::seconds kTryAgainEvery{5};

  HeadCore(Settings settings, Time now);

  Actions begin();

  Actions ready(std::size_t host, const Hello& hello, Time now);
  void progressed(std::size_t host, Time now);  // the host takes bytes of the program, or has greeted
  Actions exited(std::size_t host, int code, Time now);
  // The host says that it cannot go on, or sends what no host sends.
  Actions failed(std::size_t host, const std::string& how, Time now);
  // The host's part of the job cannot begin.
  Actions cannot_begin(std::size_t host, int code, const std::string& why, Time now);
  // The link has ended. `how` is for a host that has not told its exit code: "ssh ended with exit code 255: No route
  // ...".
  Actions link_ended(std::size_t host, const std::string& how, Time now);
  Actions signal(int number, Time now);
  Actions tick(Time now);
  // Returns when tick() has something to do.
  std::optional<Time> due() const;

  // Whether nothing more comes from the host.
  bool is_done(std::size_t host) const {
    return hosts_[host].state == State::Ended || hosts_[host].state == State::Lost;
  }

 private:
  enum class State { Connecting, Ready, Running, Ended, Lost };
  struct OfHost {
    HostInfo info;
    State state = State::Connecting;
    Time last_progress;
    Time wanted_since;                 // when it was started
    bool was_tried_again = false;      // before the job began
    bool was_started_again = false;    // while the job runs
    bool is_not_needed = false;        // any more: the job has ended without it
    std::optional<Time> try_at = {};   // when it is started again
    bool has_told_failure = false;     // that this does not work
    std::string failure = {};          // as it says, until its link has ended
    std::optional<Time> ends_by = {};  // when its link is ended from here
    std::string cannot_begin = {};     // why
    std::optional<int> code = {};
    bool has_link = false;
    Hello hello = {};
  };

  // Whether its launch agent was started, and it is not ready.
  bool is_awaited(std::size_t host) const { return hosts_[host].state == State::Connecting && hosts_[host].has_link; }
  bool has_room() const;
  Time awaited_until(std::size_t host) const;
  bool all_are(State state) const;
  std::string address() const;
  bool is_own_address(const std::string& address) const;
  Actions start();
  Actions tell_shared_machines() const;
  Actions tell_environment() const;
  bool may_begin() const { return !has_started_ && !was_lost_ && stop_signal_ == 0; }
  std::optional<Actions> try_again(std::size_t host, const std::string& how, Time now);
  // Whether the job goes on if this host is lost, and wants it back.
  bool may_come_back(std::size_t host) const;
  // Whether it was lost while the job runs, and has not begun its part again.
  bool comes_back(std::size_t host) const {
    return hosts_[host].was_started_again && hosts_[host].state == State::Connecting;
  }
  Actions bring_back(std::size_t host, const std::string& how, Time now);
  Actions tell_failure(std::size_t host, const std::string& how);
  Actions join_again(std::size_t host, Time now);
  std::optional<Time> missing_until(std::size_t host) const;
  Actions look_at_missing(Time now);
  void forgo(std::size_t host);
  Actions forgo_missing();
  Actions do_without_missing();
  bool has_failed() const;
  void note_cause(std::size_t host, const std::string& how);
  StartHosts start_hosts(std::vector<std::size_t> hosts, Time now);
  Actions start_next(Time now);
  Actions lose(std::size_t host, const std::string& how, Time now);
  void stop_within(std::chrono::seconds time, Time now);
  Actions escalate(Time now);
  bool is_cut() const { return patience_ >= Patience::UntilTerm; }
  Actions cut_before_start(std::chrono::seconds until_term, Time now);
  Actions cut_if_settled(Time now);
  Actions look_at_connecting(Time now);
  Actions end_if_over();
  const OfHost* first_without_begin() const;  // none: nullptr
  int exit_code() const;
  std::string names_of(const std::function<bool(const OfHost&)>& wanted) const;

  Settings settings_;
  std::vector<OfHost> hosts_;
  Time began_;
  bool has_told_ = false;  // whom the job waits for
  bool has_started_ = false;
  std::optional<StartAll> begun_;  // where the nodes meet, once the job has begun
  bool was_lost_ = false;          // a host was, and the job ends for that
  std::string loss_;               // which, and how, if the job did not end for another reason before
  int stop_signal_ = 0;            // the first one that came here; 0: none
  enum class Patience { Endless, UntilOthersFail, UntilCut, UntilTerm, UntilKill, Over } patience_ = Patience::Endless;
  Time patience_ends_;
  bool has_ended_ = false;
};

}  // namespace ddp::launcher
