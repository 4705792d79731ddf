// SPDX-License-Identifier: BSD-3-Clause
// The keys of one connection and the encryption of its frames. Each side of a handshake makes an X25519 key pair for
// this connection only. What the two agree on, the job's secret, and the bytes of both prefaces give four values:
//
//     shared = X25519(own private key, the other side's public key)
//     base   = HMAC-SHA-256(secret, or 32 zero bytes;  "ddprun agent link" + shared + agent's preface + coordinator's)
//     value  = HMAC-SHA-256(base; its name)       "agent's proof", "coordinator's proof": both know the secret
//                                                 "agent's frames", "coordinator's frames": the key of a direction
//
// So a secret that becomes known later does not open what was recorded, and a preface that was changed on the way gives
// the two sides different keys. Frames are then sealed with libsodium's secretstream (XChaCha20-Poly1305): a frame that
// was changed, added, left out, repeated or moved cannot be opened.
//
//     header[24], once in each direction
//     length[4] in clear, as in wire/frame.hpp | the rest of the frame, sealed: 17 bytes longer
//
// Only secret.cpp and cipher.cpp see libsodium.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/membership/secret.hpp"

namespace ddp::rendezvous {

enum class LinkRole { Agent, Coordinator };
using PublicKey = std::array<unsigned char, 32>;
using Proof = std::array<unsigned char, 32>;

// The key pair of one side of one connection.
class KeyPair {
 public:
  explicit KeyPair(const Secret& private_key);
  static KeyPair random() { return KeyPair(Secret::random()); }
  const Secret& private_key() const { return private_key_; }
  const PublicKey& public_key() const { return public_key_; }

 private:
  Secret private_key_;
  PublicKey public_key_;
};

struct LinkKeys {
  Proof of_agent;
  Proof of_coordinator;
  Secret agents_frames;
  Secret coordinators_frames;
};

// `transcript` is all that both sides have said, agent first. Returns nothing if the other side's key is one of those
// that give everybody the same result.
std::optional<LinkKeys> agree(const KeyPair& own, const PublicKey& theirs, const std::optional<Secret>& secret,
                              std::string_view transcript);

bool is_same(const Proof& proof, std::string_view bytes);  // in constant time

// How many bytes a frame grows by when it is sealed.
inline constexpr std::size_t kSealBytes = 17;

// Seals what one end of a link sends and opens what it receives.
class LinkCipher {
 public:
  static constexpr std::size_t kMaxFrameBytes = 4 << 20;  // open() refuses a longer frame

  LinkCipher(LinkRole own, const LinkKeys& keys);
  ~LinkCipher();  // wipes the keys
  LinkCipher(LinkCipher&&) noexcept;
  LinkCipher& operator=(LinkCipher&&) noexcept;

  // Returns what to send instead of this frame. Frames must be sent in the order in which they were sealed.
  std::string seal(std::string_view frame);
  // Takes in bytes and appends to `frames` those frames that are whole now. Any split of the bytes gives the same
  // frames. Returns false if the other side did not send these bytes, here and now; do not call it again then.
  bool open(std::string_view bytes, std::string& frames);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ddp::rendezvous
