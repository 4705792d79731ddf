// SPDX-License-Identifier: BSD-3-Clause
// Starts ddprun with fake workers, for the tests in this folder.
#pragma once

#include <catch2/catch.hpp>
#include <csignal>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/hosts.hpp"
#include "tests/support/process.hpp"

namespace ddp::testing {

using Words = std::vector<std::string>;

inline Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Returns {ddprun, options..., fake_worker, verbs...}; tests/fixtures/fake_worker.cpp describes the
// verbs.
inline std::vector<std::string> ddprun(std::vector<std::string> options, const std::vector<std::string>& verbs) {
  options.insert(options.begin(), DDPRUN_BINARY);
  options.push_back(FAKE_WORKER_BINARY);
  options.insert(options.end(), verbs.begin(), verbs.end());
  return options;
}

// For a running ddprun. Its first process is the guardian; guardian, keeper, agent and workers are
// each the child of the one before. On the endpoint's node of a job of several nodes the keeper has
// two more children, the sidecars.
inline pid_t keeper_of(const Process& job) { return only_child_of(job.pid()); }
// Returns the child of the keeper with this name in ps: "ddp-coordinator", "ddp-store"; 0: there is none.
inline pid_t sidecar_of(const Process& job, const std::string& name) {
  for (const pid_t pid : children_of(keeper_of(job))) {
    if (read_file("/proc/" + std::to_string(pid) + "/comm") == name + "\n") return pid;
  }
  return 0;
}
// Kills that child and returns what its pid was. Throws if it is not there: kill() takes a pid of 0 for all of this
// test.
inline pid_t kill_sidecar(const Process& job, const std::string& name) {
  const pid_t sidecar = sidecar_of(job, name);
  if (sidecar == 0 || ::kill(sidecar, SIGKILL) != 0) throw std::runtime_error("there is no " + name + " to kill");
  return sidecar;
}
// Returns the agent once there is one: another one is started when it is killed.
inline pid_t agent_of(const Process& job) {
  pid_t agent = 0;
  wait_until([&] {
    for (const pid_t pid : children_of(keeper_of(job))) {
      const std::string name = read_file("/proc/" + std::to_string(pid) + "/comm");
      const bool is_agent = !name.empty() && name.rfind("ddp-", 0) != 0 && name != "jobkeeper\n";
      if (is_agent && state_of(pid) != 'Z') agent = pid;
    }
    return agent != 0;
  });
  return agent;
}
// Kills all of a node at once, so that its ddprun tells nobody: the agent is stopped first.
inline void kill_node(const Process& job) {
  ::kill(agent_of(job), SIGSTOP);
  ::kill(keeper_of(job), SIGKILL);
}

// The verbs of workers that say "up", run until tell_workers(), and then succeed.
inline const Words kUntilTold = {"note=USR1", "say=up", "until=USR1", "exit=0"};
// Tells the workers of this node to end.
inline void tell_workers(const Process& job) {
  for (const pid_t worker : children_of(agent_of(job))) ::kill(worker, SIGUSR1);
}
// Does so, and checks that the job ends well and leaves nothing.
inline void succeed(Process& job) {
  tell_workers(job);
  CHECK(job.wait().code == 0);
  CHECK(job.all_gone());
}

// The verbs of workers that say their place, and "ready" once all have met; SIGUSR1, which ddprun passes on, has them
// succeed.
inline const Words kMeetUntilTold = {"catch=USR1", "place", "meet", "ready", "wait"};

// Returns what a variable of a worker's environment is set to. Fails the test if it is not set.
inline std::string variable_of(pid_t worker, const std::string& name) {
  const std::string all = read_file("/proc/" + std::to_string(worker) + "/environ");
  const std::size_t at = all.find(name + "=");
  REQUIRE(at != std::string::npos);
  return all.substr(at + name.size() + 1).c_str();
}

// Returns the same command with a program of the test's own.
inline std::vector<std::string> ddprun_raw(std::vector<std::string> words) {
  words.insert(words.begin(), DDPRUN_BINARY);
  return words;
}

// Returns a command that runs `command` with a file system of type `options` mounted at `folder`,
// visible to it alone. Skips the test where that is not allowed.
inline Words with_file_system(const std::string& folder, const std::string& options, const Words& command) {
  const Words own = {"unshare", "-rm", "sh", "-c", "mount -t tmpfs -o " + options + " none \"$0\" && exec \"$@\"",
                     folder};
  if (run(own + Words{"true"}).code != 0) skip("no mount namespaces here");
  return own + command;
}

}  // namespace ddp::testing
