// SPDX-License-Identifier: BSD-3-Clause
// Secrets whose bytes are known, so that a test can compare what follows from them.
#pragma once

#include <numeric>
#include <string>

#include "rendezvous/membership/secret.hpp"
#include "tests/rendezvous/store/hex.hpp"

namespace ddp::rendezvous {

// Returns one of 32 equal bytes.
inline Secret secret_of(unsigned char byte) {
  Secret::Bytes bytes;
  bytes.fill(byte);
  return Secret(bytes);
}
// Returns the one of bytes 0 to 31.
inline Secret counting_secret() {
  Secret::Bytes bytes;
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
  return Secret(bytes);
}

template <typename Bytes>
std::string hex_of(const Bytes& bytes) {
  return to_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace ddp::rendezvous
