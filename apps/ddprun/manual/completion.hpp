// SPDX-License-Identifier: BSD-3-Clause
// `ddprun --print-completion bash`: a script with which bash completes ddprun's options, spelled with dashes, and their
// values. The program and its arguments are completed as files; the first word also as one of the command words, but
// under torchrun's name, which has none.
#pragma once

#include <string>

#include "apps/ddprun/options/option.hpp"

namespace ddp::apps {

// Returns the script. `command` is the name to complete, ddprun or torchrun.
std::string completion_script(const Options& options, const std::string& command);

}  // namespace ddp::apps
