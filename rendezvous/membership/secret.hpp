// SPDX-License-Identifier: BSD-3-Clause
// The secret that the nodes of a job may share, and the file that it is in. It keeps strangers from joining a job:
// cipher.hpp mixes it into the keys of each link.
//
//     0123456789abcdef…        the file: 64 hex digits and a newline; others than its owner may neither read nor write
//     it
//
// A job tag names a job in eight bytes, for a handshake in which its nodes pass over the coordinators of others. It is
// no secret, and two jobs may have the same by chance: the coordinator compares the ids.
//
// Only secret.cpp and cipher.cpp see libsodium.
#pragma once

#include <array>
#include <optional>
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

// Says who may read a secret file that belongs to root. Where it is mounted into a container the pod's group may, so
// that a user who is not root can.
enum class SecretReaders { OwnerOnly, GroupToo };

// Throws Error with the path, the reason and what to do: also if the file belongs to neither this user nor root, or if
// others may read or change it.
Secret read_secret_file(const std::string& path, SecretReaders readers = SecretReaders::OwnerOnly);

// Returns the secret that these 64 hexadecimal digits are; nothing if they are something else. Takes equally long for
// every secret.
std::optional<Secret> secret_of(std::string_view digits);

// Returns the secret's 64 hexadecimal digits, for those who pass it on; nobody wipes them.
std::string digits_of(const Secret& secret);

using JobTag = std::array<unsigned char, 8>;
JobTag job_tag(const std::string& id);  // never all zeros

}  // namespace ddp::rendezvous
