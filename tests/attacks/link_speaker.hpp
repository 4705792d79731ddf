// SPDX-License-Identifier: BSD-3-Clause
// One end of a real agent link that says what a test wants: the agent of a node that does not exist, or a coordinator
// that lies. It shakes hands as ddprun does. How a link's bytes look is known here only.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "rendezvous/link/codec.hpp"
#include "rendezvous/membership/handshake.hpp"
#include "tests/rendezvous/store/raw_connection.hpp"

namespace ddp::testing {

class LinkSpeaker {
 public:
  // Connects to a coordinator on this machine. Tries again as an agent does: the store that shares the port closes new
  // connections when a round ends.
  static LinkSpeaker agent(int port) {
    for (int tries = 0; tries < 20; ++tries) {
      if (LinkSpeaker speaker = try_agent(port); speaker.is_up()) return speaker;
    }
    return try_agent(port);
  }
  static LinkSpeaker try_agent(int port) {
    LinkSpeaker speaker(rendezvous::RawConnection::to(static_cast<std::uint16_t>(port)));
    rendezvous::AgentHandshake handshake("the job", {});
    speaker.connection_.send(handshake.preface());
    speaker.shake_hands(handshake, rendezvous::LinkRole::Agent);
    return speaker;
  }
  // Takes the coordinator's part of a connection that was accepted.
  static LinkSpeaker coordinator(int fd) {
    LinkSpeaker speaker((rendezvous::RawConnection(fd)));
    rendezvous::CoordinatorHandshake handshake({}, {});
    speaker.shake_hands(handshake, rendezvous::LinkRole::Coordinator);
    return speaker;
  }

  bool is_up() const { return cipher_.has_value(); }
  template <typename Message>
  bool say(const Message& message) {
    return connection_.send(cipher_->seal(rendezvous::encode(message)));
  }
  // Returns the next message of this kind; nothing: the other side has closed the link, or is silent for 20 s.
  template <typename Message>
  std::optional<Message> hear() {
    while (true) {
      auto next = decoder_.next();
      if (auto* message = std::get_if<Message>(&next)) return std::move(*message);
      if (std::holds_alternative<rendezvous::Malformed>(next)) return std::nullopt;
      if (!std::holds_alternative<rendezvous::NeedMore>(next)) continue;
      const std::string bytes = connection_.receive(1);
      if (bytes.empty() || !take(bytes)) return std::nullopt;
    }
  }
  // Whether the other side closes the link, whatever it says before.
  bool is_closed() {
    while (!connection_.receive(1).empty()) {
    }
    return connection_.has_ended();
  }

 private:
  explicit LinkSpeaker(rendezvous::RawConnection connection) : connection_(std::move(connection)) {}

  bool take(std::string_view bytes) {
    std::string frames;
    const bool is_genuine = cipher_->open(bytes, frames);
    decoder_.feed(frames);
    return is_genuine;
  }

  template <typename Handshake>
  void shake_hands(Handshake& handshake, rendezvous::LinkRole role) {
    for (std::string byte = connection_.receive(1); !byte.empty(); byte = connection_.receive(1)) {
      std::string answer;
      auto verdict = handshake.feed(byte, answer);
      connection_.send(answer);
      if (std::holds_alternative<rendezvous::HandshakeFailed>(verdict)) return;
      if (auto* done = std::get_if<rendezvous::HandshakeDone>(&verdict)) {
        cipher_.emplace(role, done->keys);
        take(done->beyond);
        return;
      }
    }
  }

  rendezvous::RawConnection connection_;
  rendezvous::FrameDecoder decoder_;
  std::optional<rendezvous::LinkCipher> cipher_;  // once the handshake is done
};

}  // namespace ddp::testing
