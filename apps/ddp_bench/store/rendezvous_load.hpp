// SPDX-License-Identifier: BSD-3-Clause
// A job of thousands of nodes on one machine: node 0 is a real ddprun, which coordinates; all others are agents without
// workers, simulated in this process over real connections. Each step's time is the wall clock's, its cost is the CPU
// time of node 0's agent, coordinator and store together.
#pragma once

#include <functional>
#include <string>

namespace ddp::bench {

struct RendezvousStep {
  std::string step;  // form, beat, stop, restart, end
  int nodes = 0;
  std::size_t messages = 0;    // states and directives, both ways; of beat: heartbeats
  double seconds = 0;          // from the first agent's connect, report, ... until the last one has its directive
  double coordinator_cpu = 0;  // seconds
  double median_ms = 0;        // stop: from the failure's report until a node is told
  double resident_mb = 0;      // of node 0's process, after it
};

struct RendezvousPlan {
  std::string ddprun;  // its path
  int nodes = 0;
  double beat_seconds = 0;
};

// form     every agent connects and is told its ranks
// beat     heartbeats for some seconds, one a second and agent
// stop     one reports a failure, every other one is told to stop
// restart  every node is idle, then told to run again
// end      all succeed, then are told to leave
// Throws std::runtime_error if ddprun does not do its part within a minute.
void rendezvous(const RendezvousPlan& plan, const std::function<void(const RendezvousStep&)>& done);

}  // namespace ddp::bench
