// SPDX-License-Identifier: BSD-3-Clause
// The head of a job on many hosts: starts the launch agents, carries out what head_core.hpp decides, and prints what
// the hosts send, in whole lines with the host's name before them.
//
//     ddprun (head) ── ssh ══ sshd ── ddprun --on-host      on each host
//              └────── ddprun --on-host                     on this machine
//
// One thread. The launch agents lead sessions of their own, so that Ctrl-C reaches the head alone, and die with it.
#pragma once

#include <string>
#include <vector>

#include "launcher/hosts/host_list.hpp"
#include "launcher/hosts/wire/messages.hpp"

namespace ddp::launcher {

struct HeadConfig {
  std::vector<Host> hosts;         // in the order of their node ranks
  std::vector<std::string> agent;  // words of the launch agent
  JobHeader header;                // goes to every host; the head fills in the places
  std::string master_addr = {};    // as the user gave it; empty: the first host's own
  std::uint16_t master_port = 0;   // 0: a free one of the first host's
  bool may_restart = false;        // the job may go on when a host is lost and comes back (--max-restarts)
};

struct HeadEnd {
  int code = 0;              // the job's exit code
  bool has_started = false;  // all hosts were told to begin
  std::string cause = {};    // the host that ended the job, and how; empty: none was lost, and all have begun
  std::string report = {};   // from the first host; empty: it was lost, or --report-file asks for none
};

// Runs the job. Must be called while the process has one thread. Throws rendezvous::Error if the launch agents cannot
// be started.
HeadEnd run_head(const HeadConfig& config);

}  // namespace ddp::launcher
