// SPDX-License-Identifier: BSD-3-Clause
// Files that are nowhere on disk and gone with the last process that has them open (memfd_create).
#pragma once

#include <string_view>

#include "rendezvous/base/descriptor.hpp"

namespace ddp::launcher {

using rendezvous::Descriptor;

// Its content can be read at once. Throws rendezvous::Error.
Descriptor memory_file(const char* name, std::string_view content);

}  // namespace ddp::launcher
