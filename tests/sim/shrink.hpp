// SPDX-License-Identifier: BSD-3-Clause
// Leaves out of a plan whatever it can while the same promise is still broken.
#pragma once

#include "tests/sim/invariants.hpp"
#include "tests/sim/plan.hpp"

namespace ddp::sim {

Plan shrink(Plan plan, Promise broken);

}  // namespace ddp::sim
