// SPDX-License-Identifier: BSD-3-Clause
// Leaves out of a plan whatever it can while the same promise is still broken.
#pragma once

#include "tests/sim/plan.hpp"
#include "tests/sim/promises/invariants.hpp"

namespace ddp::sim {

Plan shrink(Plan plan, Promise broken);

}  // namespace ddp::sim
