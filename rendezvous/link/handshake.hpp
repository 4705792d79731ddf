// SPDX-License-Identifier: BSD-3-Clause
// The first bytes of an agent link, without any I/O: bytes in; bytes to send and a verdict out. Any split of the input
// gives the same. Two prefaces of 25 bytes, and with a secret a proof of 32 bytes from each side:
//
//     agent                                                      coordinator
//       DD "ddprun" version mode nonce[16]  ──────────────────▶
//                                           ◀──────────────────  DD "ddprun" version mode nonce[16]
//       proof[32]: HMAC(secret, "agent", both nonces)  ───────▶  verified before anything more is said
//                          verified  ◀─────────────────────────  proof[32]: HMAC(secret, "coordinator", both nonces)
//       frames (link_codec.hpp)  ◀────────────────────────────▶
//
//     dd 64 64 70 72 75 6e  01  00  5f e0 … 16 bytes        version 1, no secret (mode 1: a secret)
//
// The first eight bytes are for ever: they tell any version of ddprun which one it has met. The coordinator answers
// with its own preface even if version or mode differ, and then closes, so that the agent can say what is wrong. A
// proof that is wrong is answered with 32 zero bytes and the end; a connection that just ends says nothing for sure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "rendezvous/link/secret.hpp"

namespace ddp::rendezvous {

inline constexpr std::uint8_t kLinkVersion = 1;  // goes up whenever an older ddprun could not follow
inline constexpr std::size_t kLinkPrefaceBytes = 25;

struct HandshakeGoesOn {};
struct HandshakeDone {
  std::string beyond;  // bytes of the link itself that came with the last ones of the handshake
};
struct HandshakeFailed {
  enum class Kind {
    Stranger,      // the other side is no ddprun, or it closed early: may be another one next time
    OtherVersion,  // of ddprun
    OtherSecret,   // one side has none, or they differ
  };
  Kind kind = Kind::Stranger;
  // About the other side. The agent's of OtherVersion and OtherSecret is a whole sentence with the coordinator's name;
  // others go behind one: "coordinator node0:29400: " "what answers there is not a ddprun coordinator (…)".
  std::string why;
};
using HandshakeVerdict = std::variant<HandshakeGoesOn, HandshakeDone, HandshakeFailed>;

// After Done or Failed neither is fed any more.
class AgentHandshake {
 public:
  // where: the coordinator as the user knows it, "node0:29400".
  AgentHandshake(std::string where, std::optional<Secret> secret, const Nonce& nonce = random_nonce());

  std::string preface() const;  // what to send first
  // Appends to `answer` what must be sent, also along with Done.
  HandshakeVerdict feed(std::string_view bytes, std::string& answer);
  // The other side closed the connection, or reset it.
  HandshakeFailed ended() const;

 private:
  HandshakeVerdict check_preface(std::string& answer);

  std::string where_;
  std::optional<Secret> secret_;
  Nonce own_;
  Nonce others_{};
  bool has_preface_ = false;
  std::string received_;  // of the preface or the proof
};

class CoordinatorHandshake {
 public:
  explicit CoordinatorHandshake(std::optional<Secret> secret, const Nonce& nonce = random_nonce());

  // Appends to `answer` what must be sent, also along with Done and Failed.
  HandshakeVerdict feed(std::string_view bytes, std::string& answer);
  HandshakeFailed ended() const;

 private:
  HandshakeVerdict check_preface(std::string& answer);

  std::optional<Secret> secret_;
  Nonce own_;
  Nonce others_{};
  bool has_preface_ = false;
  std::string received_;
};

}  // namespace ddp::rendezvous
