// SPDX-License-Identifier: BSD-3-Clause
// Python's string.Template(text).safe_substitute(values), which torchrun applies to workers' arguments and to line
// prefixes.
#pragma once

#include <map>
#include <string>

namespace ddp::launcher {

// $name and ${name} become their value; a name without one, and a '$' that begins none, stay; $$ becomes $.
std::string substitute(const std::string& text, const std::map<std::string, std::string>& values);

}  // namespace ddp::launcher
