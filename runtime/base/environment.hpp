// SPDX-License-Identifier: BSD-3-Clause
// Settings from the environment or elsewhere: values with the names that messages call them by.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace ddp::runtime {

// Looks up an environment variable; std::getenv in production.
using Environment = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> process_environment(const char* name);

struct Setting {
  std::string name;  // the variable, or what else sets the value
  std::string text;
};
std::optional<Setting> setting(const Environment& environment, const char* name);
// Returns the first of these variables that is set.
std::optional<Setting> first_setting(const Environment& environment, std::initializer_list<const char*> names);

// Returns the setting as a number. Throws rendezvous::Error naming the setting unless it is within lowest..highest.
int number(const Setting& setting, int lowest, int highest);

// Whether the launcher hosts a store at MASTER_ADDR and MASTER_PORT.
enum class LaunchersStore {
  None,      // the launcher hosts none
  Here,      // it is at this address
  Elsewhere  // ddprun's has another port, so the program or a launcher below ddprun has chosen this address
};
LaunchersStore launchers_store(const Environment& environment);

// How much libddp checks and logs, from DDP_DEBUG.
enum class DebugLevel { Off, Info, Detail };
// Throws rendezvous::Error for an unknown level.
DebugLevel read_debug_level(const Environment& environment);

}  // namespace ddp::runtime
