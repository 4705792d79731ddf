// SPDX-License-Identifier: BSD-3-Clause
// What a rank of a test's job does and prints. A check that fails prints a line "wrong: ..." and makes the exit code 1;
// other results are printed for the test to read.
#pragma once

#include <unistd.h>

#include <functional>
#include <map>
#include <string>

#include "ddp/ddp.hpp"

namespace ddp::test {

using Scenarios = std::map<std::string, std::function<void(ddp::Session&)>>;
Scenarios diagnosis_scenarios();
Scenarios message_scenarios();
Scenarios group_scenarios();
Scenarios thread_scenarios();
void fault(ddp::Session& session, const std::string& words);
// Scenarios that make sessions of their own.
using Programs = std::map<std::string, std::function<void()>>;
Programs device_programs();
Programs device_graph_programs();
Programs device_hook_programs();
Programs device_model_programs();

inline bool all_right = true;

inline void say(const std::string& line) {
  const std::string text = line + "\n";
  if (write(STDOUT_FILENO, text.data(), text.size()) < 0) _exit(3);
}

inline void expect(bool right, const std::string& what) {
  if (right) return;
  all_right = false;
  say("wrong: " + what);
}

// Runs body, which must fail, and prints the error.
inline void report_failure(const std::string& what, const std::function<void()>& body) {
  try {
    body();
    expect(false, what + " succeeded");
  } catch (const ddp::Error& e) {
    say(what + " failed: " + std::to_string(static_cast<int>(e.status())) + " " + e.what());
  }
}

}  // namespace ddp::test
