// SPDX-License-Identifier: BSD-3-Clause
// What the warm parent sends to the agent, in the frames of rendezvous/wire/frame.hpp with text in them. Modules that
// it has imported may write to its socket what they like.
//
//     ParentReady "2.31 torch,numpy"     ParentForked "4711 4712"     ParentGivesUp "No module named 'x'"
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/wire/frame.hpp"

namespace ddp::launcher {

// The pids of 65,536 workers fit.
inline constexpr std::size_t kMostFromParent = 1 << 20;
inline constexpr rendezvous::FrameLimit kParentFrames[] = {{rendezvous::FrameKind::ParentReady, kMostFromParent},
                                                           {rendezvous::FrameKind::ParentForked, kMostFromParent},
                                                           {rendezvous::FrameKind::ParentGivesUp, kMostFromParent}};

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
// A ParentGivesUp also if the frame is none that a parent sends.
using ParentMessage = std::variant<ParentReady, ParentForked, ParentGivesUp>;

ParentMessage parent_message(const rendezvous::Frame& frame);

}  // namespace ddp::launcher
