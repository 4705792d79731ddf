// SPDX-License-Identifier: BSD-3-Clause
// Where one worker's stdout or stderr goes, as torchrun's -r, -t and --local-ranks-filter have it:
//
//     neither         console                          whole lines, as written
//     redirected      file                             the worker holds it itself, ddprun is not in the path
//     teed            file and console                 each line on the console has a prefix
//     rank not shown  the same without the console     its stderr is still read, for the failure report
#pragma once

#include <string>

#include "launcher/config/log_config.hpp"

namespace ddp::launcher {

// Whose stream it is.
struct StreamOwner {
  std::string role;
  std::string host;
  int local_rank = 0;
  int rank = 0;
  int workers = 1;     // on this node
  std::string folder;  // its own of this attempt; empty: there is none, so what would go to a file goes to the console
};

struct StreamRoute {
  enum class Lines {
    AsWritten,  // bytes as they come: a single worker's
    Whole,
    Teed,  // with a prefix, '\r' ends a line too, and matching ones are in the filtered file
  };
  Console console = Console::Stdout;
  int local_rank = 0;
  bool shown = true;  // on the console
  Lines lines = Lines::Whole;
  std::string prefix{};
  std::string file{};  // empty: none
};

StreamRoute route_stream(const LogConfig& config, const StreamOwner& owner, Console console);

}  // namespace ddp::launcher
