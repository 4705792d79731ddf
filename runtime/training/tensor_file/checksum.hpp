// SPDX-License-Identifier: BSD-3-Clause
// XXH3 with 64 bits: detects what disks and networks do to bytes, but not deliberate changes. The
// library is header-only (Debian: libxxhash-dev), hashes as fast as memory can be read, and leaves
// nothing to link.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::runtime {

std::uint64_t checksum(const void* data, std::uint64_t size);

// Returns 16 hexadecimal digits, as the program xxh3sum prints them.
std::string checksum_to_string(std::uint64_t checksum);
std::optional<std::uint64_t> parse_checksum(std::string_view text);

}  // namespace ddp::runtime
