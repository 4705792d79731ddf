// SPDX-License-Identifier: BSD-3-Clause
// Decides who starts ddprun on which host, so that no process has many connections. The head has one of these, and so
// has each host that is to start others. Up to kFanOut hosts are started from here. More are divided into that many
// shares: the first host of a share is started from here and, once it is ready, starts the others of its share in the
// same way.
//
//     from here ──▶ a (its share: a b c)     ──▶ b, c
//              └──▶ d (its share: d e f)     ──▶ e, f
//
// As long as a host has not got the job's header nothing of the job runs there or behind it, and its processes end with
// the connection that is gone. So what it had to do can be given to another at once:
//
//     a cannot be reached from here            Unreached, for who is above; another host of the share takes its part
//     a was ready, and is lost                 a is started again, once; another host of the share takes its part
//     b cannot be reached from a               b is started from here
//     nothing comes from b for 20 s            a gives it up, and so cannot reach it (a firewall between the two)
//     a is lost once it has the header         Gone, and all behind it with it: who is above decides (start_again())
//
// It touches nothing: an event goes in, actions come out. Hosts are numbers, their node ranks.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace ddp::launcher {

// From here.
struct StartHosts {
  std::vector<std::size_t> hosts;
};
// A host that was started from here is to start these.
struct HandOn {
  std::size_t branch;
  std::vector<std::size_t> hosts;
};
// What the host has said counts no more. `why` is empty for a host that has lost the one that had started it.
struct StartsAgain {
  std::size_t host;
  std::string why;
};
struct Unreached {
  std::size_t host;
  std::string how;
};
struct Gone {
  std::size_t host;
  std::string how;
  std::vector<std::size_t> behind;
};
using TreeAction = std::variant<StartHosts, HandOn, StartsAgain, Unreached, Gone>;

class TreeCore {
 public:
  using Actions = std::vector<TreeAction>;
  using Time = std::chrono::steady_clock::time_point;

  static constexpr std::size_t kFanOut = 32;
  static constexpr std::chrono::seconds kReachWithin{20};  // less than the head's patience, which tries it then

  // Begins with hosts that start no others, and hosts that are divided.
  Actions begin(const std::vector<std::size_t>& alone, const std::vector<std::size_t>& divided);

  // Events of a host that was started from here.
  void progressed(std::size_t host, Time now);  // also that its launch agent was started
  Actions ready(std::size_t host);
  void got_header(std::size_t host);
  Actions ended(std::size_t host, const std::string& how);

  // Hosts that are lost while the job runs are started from here: those of `share` by the first of them.
  Actions start_again(const std::vector<std::size_t>& alone, const std::vector<std::size_t>& share);

  // The host's branch, which has no header yet, cannot reach it.
  Actions unreached(std::size_t host, const std::string& how);

  // Returns the hosts that were started from here, are not ready, and have made no progress for kReachWithin.
  std::vector<std::size_t> overdue(Time now) const;
  // Returns when there may be one.
  std::optional<Time> due() const;

  bool is_from_here(std::size_t host) const;
  bool has_header(std::size_t host) const;
  bool may_get_header(std::size_t host) const;  // it was started from here, is ready, and has none
  // Whether `branch` is another host, started from here, through which `host` is reached.
  bool is_behind(std::size_t host, std::size_t branch) const;
  // Returns the host through which this one is reached: itself if it was started from here.
  std::size_t branch_of(std::size_t host) const;
  std::vector<std::size_t> behind(std::size_t branch) const;

 private:
  struct OfHost {
    std::size_t branch;  // itself: started from here
    std::optional<Time> last_progress = {};
    bool is_ready = false;
    bool has_header = false;
    bool was_started_again = false;
  };

  static std::optional<Time> awaited_until(std::size_t host, const OfHost& one);
  void put_behind(const std::vector<std::size_t>& share);

  std::map<std::size_t, OfHost> hosts_;
};

}  // namespace ddp::launcher
