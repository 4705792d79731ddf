// SPDX-License-Identifier: BSD-3-Clause
// The secret that the nodes of a job may share (DDPRUN_SECRET_FILE), and the proof of knowing it: HMAC-SHA-256 over who
// proves and one fresh nonce of each side, so a proof is good for one connection, one direction, and nothing else.
// It keeps strangers from joining a job. What passes on the link afterwards is neither encrypted nor signed.
//
//     0123456789abcdef…        the file: 64 hex digits and a newline, readable by its owner only
//
// libsodium is seen in link_secret.cpp only.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace ddp::rendezvous {

// 32 bytes, wiped when this goes.
class Secret {
 public:
  using Bytes = std::array<unsigned char, 32>;
  explicit Secret(const Bytes& bytes) : bytes_(bytes) {}
  static Secret random();
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret();

  const Bytes& bytes() const { return bytes_; }
  bool operator==(const Secret& other) const;  // in constant time

 private:
  Bytes bytes_;
};

// A new random secret, mode 0600. Never overwrites. Throws Error: the path, why, what to do.
void make_secret_file(const std::string& path);

struct SecretFile {
  Secret secret;
  std::string warning;  // not empty if others than its owner may read it: to be told to the user
};

// Throws Error: the path, why, what to do.
SecretFile read_secret_file(const std::string& path);

enum class LinkRole { Agent, Coordinator };
using Nonce = std::array<unsigned char, 16>;
using Proof = std::array<unsigned char, 32>;

Nonce random_nonce();
Proof prove(const Secret& secret, LinkRole role, const Nonce& of_agent, const Nonce& of_coordinator);
bool is_same(const Proof& proof, std::string_view bytes);  // in constant time

}  // namespace ddp::rendezvous
