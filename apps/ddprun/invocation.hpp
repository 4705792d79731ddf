// SPDX-License-Identifier: BSD-3-Clause
// How ddprun was called: by which name, and from where.
#pragma once

#include <string>

#include "launcher/config/compatibility_mode.hpp"

namespace ddp::apps {

struct Invocation {
  launcher::CompatibilityMode compatibility = launcher::CompatibilityMode::Ddprun;
  std::string own_folder;  // where the binary lies
  // The interpreter of the virtual or conda environment that the called file or link lies in; empty: it lies in none.
  // torchrun runs the Python it was installed for: a link in its place means that one.
  std::string python;

  const char* name() const { return compatibility == launcher::CompatibilityMode::Torchrun ? "torchrun" : "ddprun"; }
};

// called_as: argv[0].
Invocation read_invocation(const std::string& called_as);

}  // namespace ddp::apps
