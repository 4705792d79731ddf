// SPDX-License-Identifier: BSD-3-Clause
// Turns C++ names in backtraces back into what their authors wrote. A process that crashes cannot do this itself, since
// it takes memory.
#pragma once

#include <string>

namespace ddp::launcher {

// Returns the text with each name like "train(_ZN5Model4stepEi+0x1f)" as "train(Model::step(int)+0x1f)".
std::string demangled(const std::string& text);

}  // namespace ddp::launcher
