// SPDX-License-Identifier: BSD-3-Clause
// `ddprun --print-completion SHELL`: a script that teaches the shell ddprun's options, in their spelling with dashes,
// and what their values can be. The program is a file, and so is whatever comes after it.
#pragma once

#include <string>

#include "apps/ddprun/options/option.hpp"

namespace ddp::apps {

// shell: bash, zsh or fish. command: what is completed, ddprun or torchrun.
std::string completion_script(const Options& options, const std::string& shell, const std::string& command);

}  // namespace ddp::apps
