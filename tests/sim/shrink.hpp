// SPDX-License-Identifier: BSD-3-Clause
// Returns a smaller plan that still breaks the same promise, for people to read.
#pragma once

#include "tests/sim/plan.hpp"
#include "tests/sim/promises/invariants.hpp"

namespace ddp::sim {

Plan shrink(Plan plan, Promise broken);

}  // namespace ddp::sim
