// SPDX-License-Identifier: BSD-3-Clause
// What a process is doing: the stacks of its threads.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace ddp::launcher {

struct Frame {
  std::string function;     // empty where there are no symbols
  std::string file;         // the source of a Python frame; the program or library of a native one
  int line = 0;             // 0: not known
  std::string source = {};  // the source of a native frame, where its program has debug information

  bool operator==(const Frame&) const = default;
};

// The frames are innermost first.
struct ThreadStack {
  pid_t id = 0;
  std::string name;    // Python's, else the kernel's
  std::string kernel;  // what the kernel says: "runs", "asleep in futex_wait_queue"
  std::vector<Frame> python;
  std::vector<Frame> native;  // with Python frames: only what the innermost of them has called
};

struct WorkerStacks {
  int rank = 0;
  pid_t pid = 0;
  std::vector<ThreadStack> threads;  // the main thread first; empty if the process has ended
  std::vector<std::string> missing;  // what could not be read, and why
};

}  // namespace ddp::launcher
