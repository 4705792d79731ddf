// SPDX-License-Identifier: BSD-3-Clause
// The first bytes of an agent link, without any I/O: bytes in; bytes to send and a verdict out. Any split of the input
// gives the same result. Each side sends a preface of 49 bytes, and a proof if the job has a secret:
//
//     agent                                                      coordinator
//       DD "ddprun" version mode job[8] key[32]  ────────────▶
//                                           ◀──────────────────  DD "ddprun" version mode job[8] key[32]
//       proof  ──────────────────────────────────────────────▶  verified before the coordinator says more
//                          verified  ◀─────────────────────────  proof
//       sealed frames (cipher.hpp, link/codec.hpp)  ◀───▶
//
//     dd 64 64 70 72 75 6e  04  00  9a 41 … 8 bytes  5f e0 … 32 bytes   version 4, no secret
//
//     mode   proof
//     0      none: the frames are encrypted, but nothing says by whom
//     1      32 bytes, which follow from the secret and from all that was said before (link/cipher.hpp)
//     2      length[2], then a credential of MUNGE whose payload is the proof of mode 1 for a secret of zeros
//
// The first eight bytes never change: they tell any version of ddprun which version it has met. The coordinator answers
// with its own preface even if version or mode differ, and then closes, so that the agent can say what is wrong. It
// answers a wrong proof with one of zeros (mode 2: length 0) and closes; a connection that only closes would leave the
// reason open.
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

#include "rendezvous/membership/cipher.hpp"
#include "rendezvous/membership/membership.hpp"

namespace ddp::rendezvous {

inline constexpr std::uint8_t kLinkVersion = 4;  // raised whenever an older ddprun could not follow
inline constexpr std::size_t kLinkPrefaceBytes = 49;

struct HandshakeGoesOn {};
struct HandshakeDone {
  std::string beyond;  // bytes of the link itself that came with the end of the handshake
  LinkKeys keys;
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
  AgentHandshake(std::string where, Membership membership, std::optional<JobTag> job = {},
                 const KeyPair& key = KeyPair::random());

  const std::string& preface() const { return preface_; }  // what to send first
  // Appends to `answer` what must be sent, also with Done.
  HandshakeVerdict feed(std::string_view bytes, std::string& answer);
  // Returns the failure if the other side closes or resets the connection now.
  HandshakeFailed ended() const;

 private:
  HandshakeVerdict check_preface(std::string& answer);
  std::string why_unlike(Membership::Kind theirs) const;
  HandshakeVerdict check_proof() const;

  std::string where_;
  Membership membership_;
  std::optional<JobTag> job_;
  KeyPair key_;
  std::string preface_;
  std::optional<LinkKeys> keys_;  // set once the other side's preface is there
  std::string received_;          // the beginning of the preface or the proof
};

class CoordinatorHandshake {
 public:
  CoordinatorHandshake(Membership membership, const JobTag& job, const KeyPair& key = KeyPair::random());

  // Appends to `answer` what must be sent, also with Done and Failed.
  HandshakeVerdict feed(std::string_view bytes, std::string& answer);
  HandshakeFailed ended() const;

 private:
  HandshakeVerdict check_preface(std::string& answer);
  HandshakeVerdict check_proof(std::string& answer) const;

  Membership membership_;
  JobTag job_;
  KeyPair key_;
  std::string preface_;
  std::optional<LinkKeys> keys_;
  std::string received_;
};

}  // namespace ddp::rendezvous
