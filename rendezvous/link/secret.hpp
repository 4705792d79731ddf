// SPDX-License-Identifier: BSD-3-Clause
// The secret that the nodes of a job may share, and the file that it is in. It keeps strangers from joining a job:
// cipher.hpp mixes it into the keys of each link.
//
//     0123456789abcdef…        the file: 64 hex digits and a newline, readable by its owner only
//
// A job tag names a job in eight bytes, for a handshake in which its nodes pass over the coordinators of others. It is
// no secret, and two jobs may have the same by chance: the coordinator compares the ids.
//
// Only secret.cpp and cipher.cpp see libsodium.
#pragma once

#include <array>
#include <string>

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

using JobTag = std::array<unsigned char, 8>;
JobTag job_tag(const std::string& id);  // never all zeros

}  // namespace ddp::rendezvous
