// SPDX-License-Identifier: BSD-3-Clause
// Python's string.Template(text).safe_substitute(values), which torchrun applies to workers' arguments and to the
// prefix of lines.
#pragma once

#include <map>
#include <string>

namespace ddp::launcher {

// Returns the text with $name and ${name} replaced by their value and $$ by $. A name without a value stays as it is,
// and so does a '$' without a name.
std::string substitute(const std::string& text, const std::map<std::string, std::string>& values);

}  // namespace ddp::launcher
