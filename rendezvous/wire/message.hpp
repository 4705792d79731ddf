// SPDX-License-Identifier: BSD-3-Clause
// Messages as frames. A message is a struct with the kind of its frame; declared_json.hpp shows how its members are
// declared. An accept() for the message, if there is one, checks what was read and makes its words printable: it
// returns what cannot be true.
//
//     struct Hello {
//       static constexpr FrameKind kKind = FrameKind::Hello;
//       std::string host;
//     };
//
// Only .cpp files include this.
#pragma once

#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "rendezvous/wire/declared_json.hpp"
#include "rendezvous/wire/frame.hpp"

namespace ddp::rendezvous {

template <typename Message>
std::string to_frame(const Message& message) {
  return to_frame(Message::kKind, json_of(message));
}

// Returns what json_of() wrote, or why the text is something else.
template <typename Message>
std::variant<Malformed, Message> read_checked(std::string_view json, int depth = kMaxJsonDepth) {
  try {
    Message message;
    take_json(parse_shallow(json, depth), message);
    if constexpr (requires { accept(message); }) {
      if (auto why = accept(message)) return Malformed{std::move(*why)};
    }
    return message;
  } catch (const std::exception& error) {
    return Malformed{error.what()};
  }
}

// Returns the message of the frame's kind, or why there is none.
template <typename... Messages>
std::variant<Malformed, Messages...> read_message(const Frame& frame, int depth = kMaxJsonDepth) {
  std::variant<Malformed, Messages...> result = Malformed{"a message that does not belong here"};
  const auto read_as = [&]<typename Message>(const Message*) {
    if (frame.kind != Message::kKind) return;
    auto read = read_checked<Message>(frame.payload, depth);
    std::visit([&result](auto& taken) { result = std::move(taken); }, read);
  };
  (read_as(static_cast<const Messages*>(nullptr)), ...);
  return result;
}

// Returns the message that the text's one frame has.
template <typename... Messages>
std::variant<Malformed, Messages...> read_single(std::string_view text, std::span<const FrameLimit> limits) {
  FrameReader reader(limits);
  reader.add(text);
  const auto next = reader.next();
  if (const auto* frame = std::get_if<Frame>(&next)) return read_message<Messages...>(*frame);
  const auto* wrong = std::get_if<Malformed>(&next);
  return wrong != nullptr ? *wrong : Malformed{"a frame that is cut off"};
}

// Returns the message of a datagram, which is one frame.
template <typename... Messages>
std::variant<Malformed, Messages...> read_datagram(std::string_view bytes) {
  constexpr FrameLimit kLimits[] = {{Messages::kKind, std::string_view::npos - kFrameHead}...};
  return read_single<Messages...>(bytes, kLimits);
}

}  // namespace ddp::rendezvous
