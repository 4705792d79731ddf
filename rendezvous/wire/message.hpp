// SPDX-License-Identifier: BSD-3-Clause
// Messages as frames. A message is a struct with the kind of its frame; declared_json.hpp shows how its members are
// declared. Where there is an accept() for the message, it is asked about each one that has come: it makes words
// printable, and returns what cannot be true.
//
//     struct Hello {
//       static constexpr FrameKind kKind = FrameKind::Hello;
//       std::string host;
//     };
//
// Only .cpp files include this.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <variant>

#include "rendezvous/wire/declared_json.hpp"
#include "rendezvous/wire/frame.hpp"

namespace ddp::rendezvous {

template <typename Message>
std::string to_frame(const Message& message) {
  return to_frame(Message::kKind, json_of(message));
}

// Returns the message of the frame's kind, or why there is none.
template <typename... Messages>
std::variant<Malformed, Messages...> read_message(const Frame& frame, int depth = kMaxJsonDepth) {
  std::variant<Malformed, Messages...> read = Malformed{"a message that does not belong here"};
  const auto take = [&]<typename Message>(Message message) {
    if (frame.kind != Message::kKind) return;
    take_json(parse_shallow(frame.payload, depth), message);
    if constexpr (requires { accept(message); }) {
      if (const auto why = accept(message)) return void(read = Malformed{*why});
    }
    read = std::move(message);
  };
  try {
    (take(Messages{}), ...);
  } catch (const std::exception& error) {
    read = Malformed{error.what()};
  }
  return read;
}

}  // namespace ddp::rendezvous
