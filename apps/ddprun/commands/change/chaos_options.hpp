// SPDX-License-Identifier: BSD-3-Clause
// The arguments of `ddprun chaos`.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddp::apps {

// What one kill kills.
enum class ChaosKind {
  Worker,  // one worker
  Agent,   // the agent; what is left of its workers is then killed by the keeper above it
  Node,    // the agent and all of its workers, as if the machine were gone
};

struct ChaosOptions {
  std::string job;  // empty: the only one
  ChaosKind kind = ChaosKind::Worker;
  std::chrono::milliseconds every{30'000};
  std::optional<std::int64_t> count = {};  // how many kills; nothing: until the job ends
  std::optional<std::uint64_t> seed = {};
};

// Throws SyntaxError, which says what is wrong and shows the usage.
ChaosOptions parse_chaos(const std::vector<std::string>& arguments);

}  // namespace ddp::apps
