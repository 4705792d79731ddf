// SPDX-License-Identifier: BSD-3-Clause
// The first bytes of an agent link, without any I/O: bytes in; bytes to send and a verdict out. Any split of the input
// gives the same result. Each side sends a preface of 33 bytes and, with a secret, a proof of 32 bytes:
//
//     agent                                                      coordinator
//       DD "ddprun" version mode job[8] nonce[16]  ───────────▶
//                                           ◀──────────────────  DD "ddprun" version mode job[8] nonce[16]
//       proof[32]: HMAC(secret, "agent", both nonces)  ───────▶  verified before the coordinator says more
//                          verified  ◀─────────────────────────  proof[32]: HMAC(secret, "coordinator", both nonces)
//       frames (link/codec.hpp)  ◀────────────────────────────▶
//
//     dd 64 64 70 72 75 6e  02  00  9a 41 … 8 bytes  5f e0 … 16 bytes   version 2, no secret (mode 1: a secret)
//
// The first eight bytes never change: they tell any version of ddprun which version it has met. The coordinator answers
// with its own preface even if version or mode differ, and then closes, so that the agent can say what is wrong. It
// answers a wrong proof with 32 zero bytes and closes; a connection that only closes would leave the reason open.
//
// The job's tag (secret.hpp) keeps the nodes of one job from those of another where a job cannot know which port it
// gets. An agent that knows where its coordinator is sends zeros and takes any; the coordinator's directive then says
// what is wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "rendezvous/link/secret.hpp"

namespace ddp::rendezvous {

inline constexpr std::uint8_t kLinkVersion = 2;  // raised whenever an older ddprun could not follow
inline constexpr std::size_t kLinkPrefaceBytes = 33;

struct HandshakeGoesOn {};
struct HandshakeDone {
  std::string beyond;  // bytes of the link itself that came with the end of the handshake
};
struct HandshakeFailed {
  enum class Kind {
    Stranger,      // the other side is no ddprun, or it closed early; the next try may meet another one
    OtherVersion,  // the other side is another version of ddprun
    OtherSecret,   // one side has no secret, or they differ
    OtherJob,      // the coordinator belongs to another job
  };
  Kind kind = Kind::Stranger;
  // Says what is wrong with the other side. At an agent, OtherVersion and OtherSecret come with a whole sentence that
  // names the coordinator; other reasons continue one: "coordinator node0:29400: " + "what answers there is not a
  // ddprun coordinator (…)".
  std::string why;
};
using HandshakeVerdict = std::variant<HandshakeGoesOn, HandshakeDone, HandshakeFailed>;

// Do not feed either class after Done or Failed.
class AgentHandshake {
 public:
  // `where` is the coordinator as the user knows it: "node0:29400". Without a job it takes the coordinator of any.
  AgentHandshake(std::string where, std::optional<Secret> secret, std::optional<JobTag> job = {},
                 const Nonce& nonce = random_nonce());

  std::string preface() const;  // what to send first
  // Appends to `answer` what must be sent, also with Done.
  HandshakeVerdict feed(std::string_view bytes, std::string& answer);
  // Returns the failure if the other side closes or resets the connection now.
  HandshakeFailed ended() const;

 private:
  HandshakeVerdict check_preface(std::string& answer);

  std::string where_;
  std::optional<Secret> secret_;
  std::optional<JobTag> job_;
  Nonce own_;
  Nonce others_{};
  bool has_preface_ = false;
  std::string received_;  // the beginning of the preface or the proof
};

class CoordinatorHandshake {
 public:
  CoordinatorHandshake(std::optional<Secret> secret, const JobTag& job, const Nonce& nonce = random_nonce());

  // Appends to `answer` what must be sent, also with Done and Failed.
  HandshakeVerdict feed(std::string_view bytes, std::string& answer);
  HandshakeFailed ended() const;

 private:
  HandshakeVerdict check_preface(std::string& answer);

  std::optional<Secret> secret_;
  JobTag job_;
  Nonce own_;
  Nonce others_{};
  bool has_preface_ = false;
  std::string received_;
};

}  // namespace ddp::rendezvous
