// SPDX-License-Identifier: BSD-3-Clause
// The frame in which ddprun's processes send each other everything that is not another program's protocol:
//
//     00 00 00 05 6f 01 "hi\n"      a worker has written "hi\n" to stdout
//     length[4], the highest byte first | kind | version | payload
//
// The length counts what follows it. The payload is a declared message (message.hpp) or plain bytes, as the kind says.
// docs/internals/wire.md has the table of kinds.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "rendezvous/base/decoded.hpp"

namespace ddp::rendezvous {

enum class FrameKind : char {
  Beat = 'b',  // the sender lives
  // Agent link: link/messages.hpp.
  AgentState = 'A',
  Directive = 'D',
  LookRequest = 'Q',
  LookAnswer = 'L',
  LookEnd = 'E',
  ClockReading = 'C',
  // Hosts: launcher/hosts/wire.
  JobHeader = 'H',
  Signal = 's',
  Hello = 'h',
  Stdout = 'o',
  Stderr = 'e',
  Exit = 'x',
  Failed = 'f',
  CannotBegin = 'c',
  Report = 'R',
  // Sidecars: launcher/coordination/sidecars.cpp and coordinator/store_channel.cpp.
  SidecarNote = 'w',
  NodeNews = 'n',
  LeaderNews = 'l',
  OpenStore = 'O',
  StoreOpened = 'P',
  SetKey = 'k',
  Owner = 'W',
  OtherStore = 't',
};

inline constexpr char kWireVersion = 1;              // raised whenever an older ddprun could not read a frame
inline constexpr std::size_t kFrameHead = 2;         // kind and version
inline constexpr std::size_t kKeptBytes = 16 << 10;  // what is kept of a buffer after a larger frame

struct Frame {
  FrameKind kind;
  std::string_view payload;
};

// A kind that may come over a connection, and the longest payload of such a frame.
struct FrameLimit {
  FrameKind kind;
  std::size_t most;
};

std::string to_frame(FrameKind kind, std::string_view payload);

// Takes frames apart; any split of the input gives the same frames. Malformed is final. A frame's payload lies in the
// reader until the next call.
class FrameReader {
 public:
  // `limits` has all kinds that this connection may carry, and outlives the reader.
  explicit FrameReader(std::span<const FrameLimit> limits) : limits_(limits) {}
  void add(std::string_view bytes);
  std::variant<NeedMore, Frame, Malformed> next();

 private:
  std::span<const FrameLimit> limits_;
  std::string bytes_;
  std::size_t taken_ = 0;  // bytes of frames that were returned; add() erases them together
};

}  // namespace ddp::rendezvous
