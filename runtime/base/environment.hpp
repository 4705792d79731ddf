// SPDX-License-Identifier: BSD-3-Clause
// The environment, and what is set in it or elsewhere: values with the names that messages call them by.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace ddp::runtime {

// Looks up a variable: std::getenv in production.
using Environment = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> process_environment(const char* name);

struct Setting {
  std::string name;  // of the variable, or whatever else has set it
  std::string text;
};
std::optional<Setting> setting(const Environment& environment, const char* name);
// The first of these variables that is set.
std::optional<Setting> first_setting(const Environment& environment, std::initializer_list<const char*> names);

// The number it says. Throws rendezvous::Error naming the setting if it is none of lowest..highest.
int number(const Setting& setting, int lowest, int highest);

// How much libddp checks and tells, by DDP_DEBUG. Throws rendezvous::Error if it is none of these.
enum class DebugLevel { Off, Info, Detail };
DebugLevel read_debug_level(const Environment& environment);

}  // namespace ddp::runtime
