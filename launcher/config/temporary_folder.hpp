// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace ddp::launcher {

// Returns the absolute path of $TMPDIR, since workers may change their folder; or "/tmp" if TMPDIR is not set or is no
// folder.
std::string temporary_folder();

}  // namespace ddp::launcher
