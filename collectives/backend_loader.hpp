// SPDX-License-Identifier: BSD-3-Clause
// Finds a backend: "ddp" in libddp itself, any other in a module (libddp_<name>.so), which it opens. A module stays
// open until the process ends, since its threads and thread-local destructors may outlive the group that needed it.
// Safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddp/backend.h"

namespace ddp::collectives {

// Returns the folders to search for a module, in this order: $DDP_BACKEND_PATH, the folder this code was loaded from,
// and the places next to it where an installed tree keeps modules.
std::vector<std::string> backend_search_path();

// Returns the table of backend `name`: "ddp" is in libddp itself, all others are modules. Throws rendezvous::Error
// naming the folders searched and what to install.
const ddp_backend_table& load_backend(const std::string& name);

// Returns the features of a backend; none for a module made before tables had them.
std::uint64_t features_of(const ddp_backend_table& backend);
// Returns whether the backend has memory of its own for a group's buffers.
bool allocates(const ddp_backend_table& backend);

}  // namespace ddp::collectives
