// SPDX-License-Identifier: BSD-3-Clause
// The variables of the head's environment that the job on each host gets, from the head's process to the host's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddp::launcher {

// Returns this process's environment, each variable as "NAME=value".
std::vector<std::string> own_environment();

// Sets a variable of this process, "NAME=value".
void set_variable(const std::string& variable);

// Whether a variable of this name sets an option of ddprun's, or comes from a launcher around this process.
bool sets_option(std::string_view name);

// Returns "NAME=value" for each variable of `environment` ("NAME=value" too) that belongs to programs and libraries of
// a job, and for those of `wanted`: "NAME" takes it from the environment, "NAME=value" sets it. Throws
// rendezvous::Error if one of them is not there, or is no name.
std::vector<std::string> passed_variables(const std::vector<std::string>& environment,
                                          const std::vector<std::string>& wanted);

}  // namespace ddp::launcher
