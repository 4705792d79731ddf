// SPDX-License-Identifier: BSD-3-Clause
// What a process is doing: the stacks of its threads, and the calls of libddp that it is in.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::launcher {

struct StackFrame {
  std::string function;     // empty where there are no symbols
  std::string file;         // the source of a Python frame; the program or library of a native one
  int line = 0;             // 0: not known
  std::string source = {};  // the source of a native frame, where its program has debug information

  bool operator==(const StackFrame&) const = default;
};

// The frames are innermost first.
struct ThreadStack {
  pid_t id = 0;
  std::string name;    // Python's, else the kernel's
  std::string kernel;  // what the kernel says: "runs", "asleep in futex_wait_queue"
  std::vector<StackFrame> python;
  std::vector<StackFrame> native;  // with Python frames: only what the innermost of them has called
};

// A collective or a message that has not ended.
struct CallUnderWay {
  static constexpr int kNoPeer = -2, kAnyPeer = -1;

  std::string operation;          // "all_reduce", "recv"
  std::uint64_t sequence = 0;     // counts the collectives of its group, or the messages
  std::uint64_t bytes = 0;        // this rank's part
  int peer = kNoPeer;             // the other rank of a message, as the group counts
  std::int64_t milliseconds = 0;  // since it was called

  bool operator==(const CallUnderWay&) const = default;
};

// What a worker of libddp has called in one group.
struct GroupCalls {
  std::string group;                         // its name
  int rank = 0, size = 0;                    // the worker's rank in the group
  std::uint64_t collectives = 0;             // sequence number of the newest collective
  std::string newest = {};                   // its name
  std::vector<CallUnderWay> under_way = {};  // the oldest first
  std::uint64_t operations = 0;              // how many collectives and messages it has called

  bool operator==(const GroupCalls&) const = default;
};

// A process that a worker has started, such as one of a data loader.
struct ChildStacks {
  pid_t pid = 0;
  std::string name;                       // the kernel's
  std::vector<ThreadStack> threads;       // the main thread first
  std::vector<std::string> missing = {};  // as in WorkerStacks
};

struct WorkerStacks {
  int rank = 0;
  pid_t pid = 0;
  std::vector<ThreadStack> threads;        // the main thread first; empty if the process has ended
  std::vector<std::string> missing;        // what could not be read, and why
  std::vector<GroupCalls> calls = {};      // if it uses libddp
  std::vector<ChildStacks> children = {};  // some of its processes, where there was time
};

}  // namespace ddp::launcher
