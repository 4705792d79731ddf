// SPDX-License-Identifier: BSD-3-Clause
// Files in memory, without a place on disk, which exist while a process has them open
// (memfd_create).
#pragma once

#include <string_view>

#include "rendezvous/base/descriptor.hpp"

namespace ddp::launcher {

using rendezvous::Descriptor;

// Returns a file with this content, ready to be read from its beginning. Throws rendezvous::Error.
Descriptor memory_file(const char* name, std::string_view content);

}  // namespace ddp::launcher
