// SPDX-License-Identifier: BSD-3-Clause
// The secret that the nodes of a job may share (DDPRUN_SECRET_FILE), and the proof of knowing it: HMAC-SHA-256 over the
// prover's role and one fresh nonce of each side, so a proof is good for one connection in one direction only. It keeps
// strangers from joining a job. The messages on the link afterwards are neither encrypted nor signed.
//
//     0123456789abcdef…        the file: 64 hex digits and a newline, readable by its owner only
//
// A job tag names a job in eight bytes, for a handshake in which its nodes pass over the coordinators of others. It is
// no secret, and two jobs may have the same by chance: the coordinator compares the ids.
//
// Only secret.cpp sees libsodium.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace ddp::rendezvous {

// 32 bytes, which the destructor wipes.
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

// Writes a new random secret with mode 0600. Never overwrites a file. Throws Error with the path, the reason and what
// to do.
void make_secret_file(const std::string& path);

struct SecretFile {
  Secret secret;
  std::string warning;  // for the user, if others than the owner may read the file; else empty
};

// Throws Error with the path, the reason and what to do.
SecretFile read_secret_file(const std::string& path);

enum class LinkRole { Agent, Coordinator };
using Nonce = std::array<unsigned char, 16>;
using Proof = std::array<unsigned char, 32>;

Nonce random_nonce();
Proof prove(const Secret& secret, LinkRole role, const Nonce& of_agent, const Nonce& of_coordinator);
using JobTag = std::array<unsigned char, 8>;
JobTag job_tag(const std::string& id);  // never all zeros

bool is_same(const Proof& proof, std::string_view bytes);  // in constant time

}  // namespace ddp::rendezvous
