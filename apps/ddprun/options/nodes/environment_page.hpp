// SPDX-License-Identifier: BSD-3-Clause
// The text of --print environment: the nodes that the job would have, and the source of each value.
#pragma once

#include <optional>
#include <string>

#include "apps/ddprun/options/nodes/node_options.hpp"
#include "launcher/platform/platform.hpp"

namespace ddp::apps {

// `given` is what the command line and PET_* say.
std::string environment_page(const NodeOptions& given, const std::optional<std::string>& workers,
                             const launcher::Surroundings& here);

}  // namespace ddp::apps
