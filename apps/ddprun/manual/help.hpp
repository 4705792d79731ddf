// SPDX-License-Identifier: BSD-3-Clause
// `ddprun --help`: the manual for a terminal. Options are described where they are declared, in given_options.cpp.
#pragma once

#include <string>

#include "apps/ddprun/options/option.hpp"

namespace ddp::apps {

std::string help_page(const Options& options);

}  // namespace ddp::apps
