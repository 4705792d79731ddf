// SPDX-License-Identifier: BSD-3-Clause
// How the nodes of a job find its leader, the node whose coordinator serves them. There are three ways to meet:
//
//     at an endpoint   the endpoint's node leads                                  meeting_endpoint.cpp
//     in a file        the node leads that creates the file, in a shared folder   meeting_file.hpp
//     in etcd          the node leads that has the job's lease (candidate.hpp)    meeting_etcd.cpp
//
// A job of one node has no meeting.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/config/launch_config.hpp"
#include "launcher/coordination/sidecars.hpp"
#include "rendezvous/link/client.hpp"
#include "rendezvous/net/listen.hpp"

namespace ddp::launcher {

class Meeting {
 public:
  // With what the sidecars of this node are started.
  struct Start {
    std::vector<std::string> addresses;  // on which the store listens
    rendezvous::Listeners listeners;
    int kept_open = -1;  // a file that stays open as long as the sidecars run; -1: none
  };

  Meeting() = default;
  virtual ~Meeting() = default;
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  // Returns where the nodes meet, for messages: `10.0.0.1:29500`, or the file.
  virtual std::string where() const = 0;
  // Tries to have this node lead. Returns nothing if it cannot; target() may have changed then. Throws
  // rendezvous::Error if the port is taken, or the file cannot be used. Called again when nothing answers at target().
  virtual std::optional<Start> try_to_lead() = 0;
  // Reads again where the leader is, when nothing answers at target(). Returns whether target() has changed.
  virtual bool has_moved() { return false; }
  // Returns where another node's coordinator is; undefined while is_known() is false.
  virtual rendezvous::LinkTarget target() const = 0;
  virtual bool is_known() const { return true; }

  // Returns whether a node that has sidecars is the leader.
  virtual bool leads() const { return true; }
  // Returns this machine's numeric address to which the endpoint's host leads, if this node is to coordinate; empty if
  // it leads nowhere or to another machine.
  virtual std::string own_endpoint() const { return ""; }
  // Returns words about another process of this machine that has the endpoint's port; empty if there is none.
  virtual std::string taken_by() const { return ""; }

  // Where this node has a candidate: takes its news, perhaps old news. Returns whether target() has changed.
  virtual bool take(const Leader&) { return false; }
  // There is no link: asks the candidate for its news, which may have been lost.
  virtual void ask_again() {}
};

// Each looks up names, and throws rendezvous::Error if the configuration cannot be used.
std::unique_ptr<Meeting> meeting_at_endpoint(const LaunchConfig& config,
                                             const std::function<void(const std::string&)>& warn);
// `epoch` names the coordinator that this node starts if it leads.
std::unique_ptr<Meeting> meeting_in_file(const LaunchConfig& config, const std::string& epoch);
std::unique_ptr<Meeting> meeting_in_etcd(const LaunchConfig& config, Sidecars& sidecars);

}  // namespace ddp::launcher
