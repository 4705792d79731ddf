// SPDX-License-Identifier: BSD-3-Clause
// Decides what the head does: the ddprun that the user started for all hosts. A link is the launch agent (ssh) of a
// host with the ddprun at its other end. Of many hosts, some are started by others, their branches
// (tree/tree_core.hpp), which pass on what comes from them.
//
//     connecting ──ready──▶ ready ──all are ready──▶ running ──exit code──▶ ended
//         ▲  │                │                         │
//         │  └─ the link ends, and no other can reach it, or the host says that it cannot ──▶ lost
//         └── it or its branch is lost ──┘ (before all are ready)
//
// No host begins before all are ready, so that a host which cannot be reached costs no other a line. A host that is
// lost later ends the job: the others get SIGTERM, and their workers --shutdown-timeout. With a branch, all hosts
// behind it are lost. The job's exit code is the first node's, which coordinates, if that is not 0, else the first one
// that is not.
//
// It touches nothing: the time and an event go in, actions come out.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "launcher/hosts/job_header.hpp"
#include "launcher/hosts/tree/tree_core.hpp"

namespace ddp::launcher {

// Node rank 0 and the address at which the others find it.
struct StartAll {
  std::string master_addr;
  std::uint16_t master_port;
};
struct SignalHosts {
  int signal;
};
struct CutLinks {  // closes the stdin of all links, which ends what is behind them
};
struct KillLinks {};
struct SayLine {
  std::string text;
};
struct EndHead {
  int code;
};
using HeadAction = std::variant<StartHosts, HandOn, StartAll, SignalHosts, CutLinks, KillLinks, SayLine, EndHead>;

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
    std::string master_addr = {};   // as the user gave it; empty: the first host's own
    std::uint16_t master_port = 0;  // 0: a free one there
    std::chrono::seconds shutdown_timeout{30};
  };

  static constexpr std::chrono::seconds kReadyWithin{60};  // without a word or a byte taken
  static constexpr std::chrono::seconds kTellAfter{10};    // whom the job waits for
  static constexpr std::chrono::seconds kBeyondTimeout{10};
  static constexpr std::chrono::seconds kAfterCut{5};

  HeadCore(Settings settings, Time now);

  Actions begin();

  Actions ready(std::size_t host, const Hello& hello, Time now);
  void progressed(std::size_t host, Time now);  // the host takes bytes of the program, or has greeted
  Actions exited(std::size_t host, int code, Time now);
  // The host says that it cannot go on, or sends what no host sends.
  Actions failed(std::size_t host, const std::string& how, Time now);
  // The link has ended, here or at the host's branch. `how` is for a host that has not told its exit code: "ssh ended
  // with exit code 255: No route ..."; empty: it is reported with its branch.
  Actions link_ended(std::size_t host, const std::string& how, Time now);
  // The host's branch starts it again. `why` is empty for a host that has lost the one that had started it.
  Actions starts_again(std::size_t host, const std::string& why, Time now);
  Actions signal(int number, Time now);
  Actions tick(Time now);
  // Returns when tick() has something to do.
  std::optional<Time> due() const;

  // Whether nothing more comes from the host.
  bool is_done(std::size_t host) const {
    return hosts_[host].state == State::Ended || hosts_[host].state == State::Lost;
  }
  bool is_from_here(std::size_t host) const { return tree_.is_from_here(host); }
  // Whether `branch` has a link to this process through which `host` is reached.
  bool is_behind(std::size_t host, std::size_t branch) const { return tree_.is_behind(host, branch); }

 private:
  enum class State { Connecting, Ready, Running, Ended, Lost };
  struct OfHost {
    HostInfo info;
    State state = State::Connecting;
    Time last_progress;
    std::optional<int> code = {};
    bool has_link = false;  // to this process
    Hello hello = {};
  };

  bool is_awaited(std::size_t host) const;
  bool all_are(State state) const;
  std::string address() const;
  Actions start();
  bool may_begin() const { return !has_started_ && !was_lost_ && stop_signal_ == 0; }
  std::optional<Actions> try_again(std::size_t host, const std::string& how, Time now);
  Actions carry_out(const TreeCore::Actions& of_tree, Time now);
  std::size_t lose_behind(std::size_t branch);
  Actions lose(std::size_t host, const std::string& how, Time now);
  void stop_within(std::chrono::seconds time, Time now);
  Actions escalate(Time now);
  Actions look_at_connecting(Time now);
  Actions end_if_over();
  int exit_code() const;
  std::string names_of(State state) const;

  Settings settings_;
  std::vector<OfHost> hosts_;
  TreeCore tree_;
  std::set<std::size_t> told_;  // branches that cannot reach a host
  Time began_;
  bool has_told_ = false;  // whom the job waits for
  bool has_started_ = false;
  bool was_lost_ = false;  // a host was
  int stop_signal_ = 0;    // the first one that came here; 0: none
  enum class Patience { Endless, UntilCut, UntilKill, Over } patience_ = Patience::Endless;
  Time patience_ends_;
  bool has_ended_ = false;
};

}  // namespace ddp::launcher
