// SPDX-License-Identifier: BSD-3-Clause
// Starts ddprun with fake workers, for the tests in this folder.
#pragma once

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
// each the child of the one before.
inline pid_t keeper_of(const Process& job) { return only_child_of(job.pid()); }
inline pid_t agent_of(const Process& job) { return only_child_of(keeper_of(job)); }

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
