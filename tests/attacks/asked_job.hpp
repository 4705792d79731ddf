// SPDX-License-Identifier: BSD-3-Clause
// A job of two workers whose agent is asked in their place.
#pragma once

#include <signal.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "rendezvous/agent_client.hpp"
#include "tests/integration/ddprun.hpp"

namespace ddp::testing {

struct AskedJob {
  explicit AskedJob(const Words& options = {}) : process(ddprun(Words{"--nproc-per-node=2"} + options, kUntilTold)) {
    process.wait_for("up", 2);
    workers = children_of(agent_of(process));
    REQUIRE(workers.size() == 2);
    socket = variable_of(workers[0], "DDPRUN_AGENT_SOCKET");
  }
  ~AskedJob() {
    for (const pid_t worker : workers) ::kill(worker, SIGUSR1);
    process.wait();
  }
  AskedJob(const AskedJob&) = delete;
  AskedJob& operator=(const AskedJob&) = delete;

  std::string incarnation_of(std::size_t worker) const { return variable_of(workers[worker], "DDPRUN_INCARNATION"); }
  // Returns the agent's answer to a question without further members.
  std::string ask(const std::string& what) const {
    return rendezvous::ask_agent(socket, encode(rendezvous::AgentRequest{.ask = what})).text;
  }
  bool serves() const { return ask("state").find("\"phase\"") != std::string::npos; }

  Process process;
  std::vector<pid_t> workers;
  std::string socket;
};

}  // namespace ddp::testing
