// SPDX-License-Identifier: BSD-3-Clause
// What the warm parent says: lines of text over its socket, without any I/O. Modules that it has imported may write
// there what they like.
//
//     ready 2.31 torch,numpy\n    spawned 4711 4712\n    refused it has a thread\n    failed No module named 'x'\n
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ddp::launcher {

// Limit of one line: the pids of 65,536 workers fit. A parent that writes more without a newline is given up.
inline constexpr std::size_t kMaxParentLine = 1 << 20;

struct ParentReady {
  std::string modules;
  std::chrono::milliseconds took{0};
};
struct ParentForked {
  std::vector<pid_t> pids;  // positive, each once
};
struct ParentGivesUp {
  std::string why;
};
struct ParentTalksNonsense {
  std::string what;
};
using ParentLine = std::variant<ParentReady, ParentForked, ParentGivesUp, ParentTalksNonsense>;

class ParentLines {
 public:
  void feed(std::string_view bytes) { received_.append(bytes); }
  // Takes the next whole line into `line`. Returns false if there is none. Do not go on after nonsense.
  bool next(ParentLine& line);

 private:
  std::string received_;
};

}  // namespace ddp::launcher
