// SPDX-License-Identifier: BSD-3-Clause
// A job of thousands of nodes on one machine: node 0 is a real ddprun, which coordinates; all others are agents without
// workers, simulated in this process over real connections. A step's time is wall-clock time; its cost is the CPU time
// of node 0's agent, coordinator and store together.
#pragma once

#include <functional>
#include <string>

namespace ddp::bench {

struct RendezvousStep {
  std::string step;  // form, beat, stop, restart, end
  int nodes = 0;
  std::size_t messages = 0;    // states and directives, both ways; in beat: heartbeats
  double seconds = 0;          // from the first agent's connect, report, ... until the last agent has its directive
  double coordinator_cpu = 0;  // seconds
  double median_ms = 0;        // stop: from the failure's report until a node has the directive
  double resident_mb = 0;      // memory of node 0's process after the step
};

struct RendezvousPlan {
  std::string ddprun;  // its path
  int nodes = 0;
  double beat_seconds = 0;
};

// form     every agent connects and gets its ranks
// beat     heartbeats for some seconds, one a second from each agent
// stop     one agent reports a failure, every other one gets the directive to stop
// restart  every node becomes idle and gets the directive to run again
// end      all nodes succeed and get the directive to exit
// Throws std::runtime_error if ddprun does not do its part within a minute.
void rendezvous(const RendezvousPlan& plan, const std::function<void(const RendezvousStep&)>& done);

}  // namespace ddp::bench
