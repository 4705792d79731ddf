// SPDX-License-Identifier: BSD-3-Clause
// Resolves --serve and --serve-token: where the page of the job is, and for whom.
#pragma once

#include <optional>
#include <string>

#include "launcher/config/launch_config.hpp"

namespace ddp::apps {

// The values as they were given.
struct PageOptions {
  std::string serve;
  std::string token_file;
};

// Returns nothing if no page was asked for. Throws UsageError.
std::optional<launcher::PageConfig> resolve_page(const PageOptions& options);

}  // namespace ddp::apps
