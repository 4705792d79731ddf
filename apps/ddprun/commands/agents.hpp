// SPDX-License-Identifier: BSD-3-Clause
// Finds the agents of this user on this machine.
#pragma once

#include <string>
#include <vector>

#include "launcher/local/agent_state.hpp"

namespace ddp::apps {

struct AgentAnswers {
  struct Answer {
    std::string state;  // JSON, as launcher/local/agent_state.hpp shows it
    std::string socket;
  };
  std::vector<Answer> all;
  bool is_complete = true;  // false: an agent gave no answer, which was said on stderr
};

// Asks all agents for their state. Removes the sockets of those that were killed. `command` begins what is said on
// stderr. Throws rendezvous::Error if the folder of the sockets is not private to this user.
AgentAnswers ask_all_agents(const std::string& command);

// Asks one agent for its state. Throws rendezvous::Error, with code PeerLost if nobody listens there.
std::string ask_state(const std::string& socket);

struct FoundJob {
  launcher::AgentView view;
  std::string socket;  // its agent's
};

// Returns the agent of the job that `name` means: its id, the beginning of its id, or its pid; the only one, if `name`
// is empty. Throws UsageError, which lists the jobs, if there is none or more than one.
FoundJob find_job(const std::string& command, const std::string& name);

}  // namespace ddp::apps
