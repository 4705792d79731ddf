// SPDX-License-Identifier: BSD-3-Clause
// Names in backtraces as their authors wrote them. A process that crashes cannot do this itself: it takes memory.
#pragma once

#include <string>

namespace ddp::launcher {

// "train(_ZN5Model4stepEi+0x1f)" becomes "train(Model::step(int)+0x1f)", wherever it is in the text.
std::string demangled(const std::string& text);

}  // namespace ddp::launcher
