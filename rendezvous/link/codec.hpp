// SPDX-License-Identifier: BSD-3-Clause
// The agent link's bytes: frames of a 4-byte big-endian length and that many bytes of JSON, at most kMaxFrameBytes and
// kMaxDepth deep; text that is not UTF-8 is mended before it is sent. JSON is seen in link_codec.cpp only.
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

// Holds the failures of a node of 64 workers, 20 lines of stderr each, several times over.
inline constexpr std::size_t kMaxFrameBytes = 4 << 20;
inline constexpr int kMaxDepth = 16;

std::string encode(const AgentState& state);
std::string encode(const Directive& directive);
std::string encode(const Heartbeat&);  // an empty frame: nothing to parse, thousands come each second

struct NeedMoreBytes {};
struct MalformedFrame {
  std::string why;
};

// Bytes in, messages out; any split of the input gives the same messages. After MalformedFrame it stays malformed.
class FrameDecoder {
 public:
  void feed(std::string_view bytes) { buffer_.append(bytes); }
  std::variant<NeedMoreBytes, AgentState, Directive, Heartbeat, MalformedFrame> next();

 private:
  std::string buffer_;
};

}  // namespace ddp::rendezvous
