// SPDX-License-Identifier: BSD-3-Clause
// The agent link's bytes. A frame is a 4-byte big-endian length and that many bytes of JSON, at most kMaxFrameBytes and
// nested at most kMaxDepth deep. Bytes that are not UTF-8 are replaced before they are sent. Of the link, only
// codec.cpp sees JSON.
//
//     00 00 00 3c  {"type":"directive","kind":"wait","round":0,...}
//     00 00 00 00  a heartbeat
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

#include "rendezvous/link/messages.hpp"

namespace ddp::rendezvous {

// Several times what the failures of a node of 64 workers take, with 20 lines of stderr each.
inline constexpr std::size_t kMaxFrameBytes = 4 << 20;
inline constexpr int kMaxDepth = 16;
// What is kept of a buffer after a larger frame: thousands of links live for days.
inline constexpr std::size_t kKeptBytes = 16 << 10;

std::string encode(const AgentState& state);
std::string encode(const Directive& directive);
std::string encode(const LookRequest& request);
std::string encode(const LookAnswer& answer);
std::string encode(const LookEnd& end);
std::string encode(const ClockReading& reading);
std::string encode(const Heartbeat&);  // an empty frame, since thousands of heartbeats come each second

struct NeedMoreBytes {};
struct MalformedFrame {
  std::string why;
};

using DecodedFrame = std::variant<NeedMoreBytes, AgentState, Directive, Heartbeat, LookRequest, LookAnswer, LookEnd,
                                  ClockReading, MalformedFrame>;

// Turns bytes into messages that accept() has let through; any split of the input gives the same messages.
// MalformedFrame is final.
class FrameDecoder {
 public:
  void feed(std::string_view bytes) { buffer_.append(bytes); }
  DecodedFrame next();

 private:
  std::string buffer_;
};

}  // namespace ddp::rendezvous
