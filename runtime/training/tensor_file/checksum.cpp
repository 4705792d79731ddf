// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/tensor_file/checksum.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <charconv>
#include <cstddef>

namespace ddp::runtime {

std::uint64_t checksum(const void* data, std::uint64_t size) { return XXH3_64bits(data, size); }

std::string checksum_to_string(std::uint64_t checksum) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (std::size_t i = 0; i < text.size(); ++i) text[text.size() - 1 - i] = kDigits[checksum >> (4 * i) & 0xf];
  return text;
}

std::optional<std::uint64_t> parse_checksum(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace ddp::runtime
