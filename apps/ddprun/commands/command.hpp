// SPDX-License-Identifier: BSD-3-Clause
// The command words: `ddprun ps` and others look into running jobs. A word counts as one only as the very first
// argument, where no program of that name is in the working directory, and never under torchrun's name; `ddprun -- ps`
// and `ddprun ./ps` always start a program.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ddp::apps {

// Runs the command, if the arguments are one, and returns its exit code.
std::optional<int> run_command(const std::vector<std::string>& arguments);

}  // namespace ddp::apps
