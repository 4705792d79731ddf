// SPDX-License-Identifier: BSD-3-Clause
// How ddprun was called: by which name, and from where.
#pragma once

#include <string>

#include "launcher/config/compatibility_mode.hpp"

namespace ddp::apps {

struct Invocation {
  launcher::CompatibilityMode compatibility = launcher::CompatibilityMode::Ddprun;
  std::string own_folder;  // the folder of the binary
  // The interpreter of the virtual or conda environment that contains the called file or link; empty if none does.
  // torchrun runs the Python it was installed for, so a link in its place stands for that one.
  std::string python;

  const char* name() const { return compatibility == launcher::CompatibilityMode::Torchrun ? "torchrun" : "ddprun"; }
};

// Returns how this process was called; `called_as` is argv[0].
Invocation read_invocation(const std::string& called_as);

}  // namespace ddp::apps
