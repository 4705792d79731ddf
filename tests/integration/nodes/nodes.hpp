// SPDX-License-Identifier: BSD-3-Clause
// A job of several nodes: one ddprun on each of several hosts.
#pragma once

#include <catch2/catch.hpp>
#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/ddprun.hpp"
#include "tests/support/hosts.hpp"

namespace ddp::testing {

// Returns the options of a job of fixed size in which node0 coordinates.
inline Words static_job(int nodes) {
  return {"--nnodes=" + std::to_string(nodes), "--master_addr=node0", "--master_port=29500"};
}
inline Words c10d_job(const std::string& nnodes, const std::string& conf = "last_call_timeout=1") {
  return {"--nnodes=" + nnodes, "--rdzv-backend=c10d", "--rdzv-endpoint=node0:29400", "--rdzv-id=job",
          "--rdzv-conf=" + conf};
}

class NodesJob {
 public:
  // options are those of all nodes; tests/fixtures/fake_worker.cpp describes the verbs.
  NodesJob(const Hosts& hosts, Words options, Words verbs)
      : hosts_(hosts), options_(std::move(options)), verbs_(std::move(verbs)) {}

  Process& start(int host, const Words& options = {}, const Process::Options& process = {}) {
    nodes_.emplace_back(host, std::make_unique<Process>(hosts_.on(host, ddprun(options_ + options, verbs_)), process));
    return *nodes_.back().second;
  }
  // Starts a node of a job of fixed size, whose node rank is the number of its host.
  Process& start_ranked(int host, const Words& options = {}, const Process::Options& process = {}) {
    return start(host, options + Words{"--node_rank=" + std::to_string(host)}, process);
  }

  // Returns the newest process on this host.
  Process& on(int host) {
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
      if (node->first == host) return *node->second;
    }
    throw std::runtime_error("nothing was started on host " + std::to_string(host));
  }

 private:
  const Hosts& hosts_;
  Words options_, verbs_;
  std::vector<std::pair<int, std::unique_ptr<Process>>> nodes_;
};

// Ends workers that wait for SIGUSR1 (`catch=USR1`, or `until=USR1`), and checks that each of these nodes ends with 0.
inline void succeed(NodesJob& job, const std::vector<int>& hosts) {
  for (const int host : hosts) job.on(host).signal(SIGUSR1);
  for (const int host : hosts) {
    const Result result = job.on(host).wait();
    CAPTURE(host, result.out, result.err);
    CHECK(result.code == 0);
  }
}

}  // namespace ddp::testing
