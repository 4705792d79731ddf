// SPDX-License-Identifier: BSD-3-Clause
// Whose behaviour ddprun follows where it differs from torchrun in a way that scripts can see: torchrun's if it was
// called by that name. Then every failure has exit code 1, the program is run by Python unless --no-python is given, a
// failed job is also reported in torchrun's format, and the usage line is torchrun's.
#pragma once

namespace ddp::launcher {

enum class CompatibilityMode { Ddprun, Torchrun };

}  // namespace ddp::launcher
