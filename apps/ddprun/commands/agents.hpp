// SPDX-License-Identifier: BSD-3-Clause
// Finds the agents of this user on this machine.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "launcher/local/job_view.hpp"

namespace ddp::apps {

struct AgentAnswers {
  struct Answer {
    std::string state;  // JSON, as launcher/local/job_view.hpp shows it
    launcher::AgentView view;
    std::string socket;
    pid_t peer = 0;  // the process that listens there, as the kernel numbers it for this one
  };
  std::vector<Answer> all;
  bool is_complete = true;                  // false: an agent gave no answer, which was said on stderr
  std::vector<std::string> elsewhere = {};  // says of each job that `ddprun --hosts` has started where it is seen
};

// Asks all agents for their state at the same time. One that has not answered within five seconds is named on stderr.
// Removes the sockets of those that were killed. `command` begins what is said on stderr. Throws rendezvous::Error if
// the folder of the sockets is not private to this user.
AgentAnswers ask_all_agents(const std::string& command);

// Asks one agent for its state. Throws rendezvous::Error, with code PeerLost if nobody listens there.
std::string ask_state(const std::string& socket);

// Asks an agent what it answers through a pipe ("job", "job_stacks"), and returns that. Throws rendezvous::Error, also
// if the agent refuses, or says nothing more within the time.
std::string ask_at_length(const std::string& socket, const std::string& ask, std::chrono::milliseconds within);

struct FoundJob {
  launcher::AgentView view;
  std::string socket;  // its agent's
  // Whether the pids in `view` mean the same processes here. In a container with pids of its own, they are others'.
  bool has_pids_of_here = false;
};

// Returns an agent of the job that `name` means: its id, the beginning of its id, or its pid; of the only job, if
// `name` is empty. Throws UsageError, which lists the jobs, if there is none or more than one.
FoundJob find_job(const std::string& command, const std::string& name);
// Returns the same for a command that watches or signals the job's processes. Throws UsageError if their pids are not
// those of here.
FoundJob find_job_with_processes(const std::string& command, const std::string& name);

}  // namespace ddp::apps
