// SPDX-License-Identifier: BSD-3-Clause
// Decides where one worker's stdout or stderr goes, as torchrun's -r, -t and --local-ranks-filter
// do:
//
//     neither         console                          whole lines, as written
//     redirected      file                             the worker holds the file, ddprun does not see the text
//     teed            file and console                 each line on the console has a prefix
//     rank not shown  as above, without the console    its stderr is still read, for the failure report
#pragma once

#include <string>

#include "launcher/config/log_config.hpp"

namespace ddp::launcher {

// The worker whose stream it is.
struct StreamOwner {
  std::string role;
  std::string host;
  int local_rank = 0;
  int rank = 0;
  int workers = 1;     // on this node
  std::string folder;  // the worker's, of this attempt; empty: there is none, and the console takes a file's place
};

struct StreamRoute {
  enum class Lines {
    AsWritten,  // bytes as they come, for a single worker
    Whole,
    Teed,  // each with a prefix; '\r' ends a line too; matching lines go to the filtered file
  };
  Console console = Console::Stdout;
  int local_rank = 0;
  bool shown = true;  // whether it goes to the console
  Lines lines = Lines::Whole;
  std::string prefix{};
  std::string file{};    // empty: none
  bool goes_on = false;  // the stream of a worker whose process is replaced: its file is not begun again
};

StreamRoute route_stream(const LogConfig& config, const StreamOwner& owner, Console console);

// Whether ddprun's stdout and stderr lead to one file, pipe or terminal.
enum class Consoles { One, Two };

// The routes of a worker's two streams.
struct WorkerRoutes {
  StreamRoute out, err;
  // One stream, which is opened for `err`, is the worker's stdout and its stderr. Two pipes to one console would lose
  // the order of what the worker writes, and pieces of a line on one would end a line on the other.
  bool are_one = false;
};
WorkerRoutes route_streams(const LogConfig& config, const StreamOwner& owner, Consoles consoles);

// Returns how many descriptors the streams of these workers take in ddprun while it starts them: both
// ends of a pipe and a log file for a teed stream, the log file alone for one that is redirected.
int descriptors_of_streams(const LogConfig& config, int workers);

}  // namespace ddp::launcher
