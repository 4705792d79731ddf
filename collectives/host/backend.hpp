// SPDX-License-Identifier: BSD-3-Clause
// The backend "ddp" for CPU memory: the ranks of one node move data through memory that they share.
#pragma once

#include "ddp/backend.h"

namespace ddp::collectives {

const ddp_backend_table& host_backend();

}  // namespace ddp::collectives
