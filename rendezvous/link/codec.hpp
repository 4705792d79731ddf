// SPDX-License-Identifier: BSD-3-Clause
// The agent link's messages as frames (wire/frame.hpp). Of the link, only codec.cpp sees JSON.
//
//     00 00 00 02 62 01                                         a heartbeat
//     00 00 00 3c 44 01 {"kind": "wait", "epoch": ...}          a directive
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

#include "rendezvous/link/messages.hpp"
#include "rendezvous/wire/frame.hpp"

namespace ddp::rendezvous {

// Several times what the failures of a node of 64 workers take, with 20 lines of stderr each.
inline constexpr std::size_t kMaxFrameBytes = 4 << 20;
inline constexpr int kMaxDepth = 16;

std::string encode(const AgentState& state);
std::string encode(const Directive& directive);
std::string encode(const LookRequest& request);
std::string encode(const LookAnswer& answer);
std::string encode(const LookEnd& end);
std::string encode(const ClockReading& reading);
std::string encode(const Heartbeat&);

using DecodedFrame =
    std::variant<NeedMore, AgentState, Directive, Heartbeat, LookRequest, LookAnswer, LookEnd, ClockReading, Malformed>;

// Turns bytes into messages that accept() has let through; any split of the input gives the same messages. Malformed
// is final.
class FrameDecoder {
 public:
  FrameDecoder();
  void feed(std::string_view bytes) { frames_.add(bytes); }
  DecodedFrame next();

 private:
  FrameReader frames_;
};

}  // namespace ddp::rendezvous
