// SPDX-License-Identifier: BSD-3-Clause
// Where ddprun and torchrun differ in what a script may look at, whose habits are kept: torchrun's if ddprun was called
// by that name. They are: every failure is exit code 1; the program is run by Python unless --no-python says otherwise;
// a failed job is also told in torchrun's words; the usage line.
#pragma once

namespace ddp::launcher {

enum class CompatibilityMode { Ddprun, Torchrun };

}  // namespace ddp::launcher
