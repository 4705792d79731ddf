// SPDX-License-Identifier: BSD-3-Clause
// The backend "ddp" for CPU memory: the ranks of one node move data through memory that they share, and over
// TCP to the ranks of other nodes.
#pragma once

#include "ddp/backend.h"

namespace ddp::collectives {

struct OwnPlace;

const ddp_backend_table& host_backend();

// Makes a group as the table's group_create does, of a rank that is at `place`. Throws Failure or std::exception.
ddp_backend_group* make_host_group(const ddp_backend_group_config& config, const OwnPlace& place);

// Lets a receive under way go on into other memory, of as many bytes.
void move_to(ddp_backend_message& receive, void* memory);

}  // namespace ddp::collectives
