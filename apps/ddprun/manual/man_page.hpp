// SPDX-License-Identifier: BSD-3-Clause
// `ddprun --print man`: the manual in roff, for `man`. Installed as share/man/man1/ddprun.1.
#pragma once

#include <string>

#include "apps/ddprun/options/option.hpp"

namespace ddp::apps {

std::string man_page(const Options& options, const std::string& version);

}  // namespace ddp::apps
