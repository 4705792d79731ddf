// SPDX-License-Identifier: BSD-3-Clause
// How ddprun was called: by which name, from where, and by whom.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "launcher/config/launch_config.hpp"
#include "launcher/hosts/wire/messages.hpp"

namespace ddp::apps {

// A process that waits for this ddprun and ends with it in mind: the Python package's launch().
struct Caller {
  pid_t pid;
  std::string program_name;  // what messages call the program; empty: as on the command line
};

struct Invocation {
  launcher::CompatibilityMode compatibility = launcher::CompatibilityMode::Ddprun;
  std::string own_folder;  // the folder of the binary
  std::string file;        // the binary, or the link to it that was called
  // The interpreter of the virtual or conda environment that contains the called file or link; empty if none does.
  // torchrun runs the Python it was installed for, so a link in its place stands for that one.
  std::string python;
  std::optional<Caller> caller;
  std::optional<launcher::HostPlace> place;  // that the head has given to this host, see launcher/hosts
  std::optional<launcher::ToHead> to_head;   // then, too

  const char* name() const { return compatibility == launcher::CompatibilityMode::Torchrun ? "torchrun" : "ddprun"; }
};

// Returns how the head was called, for the part of its job that runs on this host.
Invocation invocation_of(const launcher::JobHeader& header);

// Returns how this process was called; `called_as` is argv[0].
Invocation read_invocation(const std::string& called_as);

// Has the kernel end this process with SIGTERM when the caller dies. Must be called before there are children.
void end_with(const Caller& caller);

}  // namespace ddp::apps
