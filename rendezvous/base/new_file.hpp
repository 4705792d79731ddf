// SPDX-License-Identifier: BSD-3-Clause
// Files that are written under a name of their own. Others may be able to write in the folder: none of
// these functions follows a link or writes into a file that is there, and the names cannot be guessed.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "rendezvous/base/descriptor.hpp"

namespace ddp::rendezvous {

// Returns PATH.tmp.ID, for a file that is then renamed to `path`.
std::string temporary_name(const std::string& path);

// Creates the file, which must not exist, for writing. Returns none, with errno, if that fails. May be
// called by signal handlers.
Descriptor create_file(const char* path, mode_t mode);

// Puts a new file with this content and mode in the place of what is there, so that no reader sees half
// of it. If that fails, it removes the new file, sets errno and returns false.
bool replace_file(const std::string& path, std::string_view content, mode_t mode);

}  // namespace ddp::rendezvous
