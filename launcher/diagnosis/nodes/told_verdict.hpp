// SPDX-License-Identifier: BSD-3-Clause
// The verdict about a job that stands still, as the node that has judged passes it on to the others.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/diagnosis/hang_watch.hpp"
#include "launcher/output/log.hpp"

namespace ddp::launcher {

struct ToldVerdict {
  std::string judge;  // host
  std::string since, words, place, guilt;
  std::vector<int> ranks;
  std::string links;

  bool operator==(const ToldVerdict&) const = default;
};

// Returns the verdict as JSON, long words cut so that a question has room for it.
std::string verdict_json(const Hang& hang, const std::string& judge);
// Returns what verdict_json() wrote; nothing if the text is something else.
std::optional<ToldVerdict> verdict_from_json(std::string_view json);

// Logs it as tell_hang() does, without the stacks.
void tell_verdict(const ToldVerdict& verdict, Log& log);

}  // namespace ddp::launcher
