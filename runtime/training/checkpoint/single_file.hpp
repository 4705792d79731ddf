// SPDX-License-Identifier: BSD-3-Clause
// A checkpoint that is one file, written by one rank. Its tensors may be in the memory of the CPU or of a GPU.
#pragma once

#include <span>
#include <string>

#include "ddp/ddp.h"

namespace ddp::runtime {

// Writes the file under a temporary name, fsyncs it and renames it: a crash leaves the old file or the new one. For
// tensors on a GPU the host waits for this thread's current stream. Throws rendezvous::Error.
void save_checkpoint(const std::string& path, std::span<const ddp_tensor> tensors,
                     std::span<const ddp_metadata_entry> metadata);

}  // namespace ddp::runtime
