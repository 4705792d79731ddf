// SPDX-License-Identifier: BSD-3-Clause
// Lengths, and other numbers below 2^32, as the 4 bytes that frames have them in, the highest first.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddp::rendezvous {

inline constexpr std::size_t kLengthBytes = 4;

inline void append_length(std::string& bytes, std::size_t length) {
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>((length >> shift) & 0xff);
}

// Returns the number that the bytes begin with; there must be kLengthBytes of them.
inline std::size_t length_at_begin(std::string_view bytes) {
  std::size_t length = 0;
  for (const char byte : bytes.substr(0, kLengthBytes)) length = length << 8 | static_cast<unsigned char>(byte);
  return length;
}

}  // namespace ddp::rendezvous
