// SPDX-License-Identifier: BSD-3-Clause
// Reads a fuzzer's input from its front: bytes that say what happens, one step after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ddp::fuzz {

class Script {
 public:
  Script(const std::uint8_t* data, std::size_t size) : left_(reinterpret_cast<const char*>(data), size) {}
  bool ended() const { return left_.empty(); }
  // Returns zeros after the end.
  std::uint8_t byte() {
    const std::string_view one = bytes(1);
    return one.empty() ? 0 : static_cast<std::uint8_t>(one.front());
  }
  std::string_view bytes(std::size_t size) {
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(taken.size());
    return taken;
  }
  // Returns a number that may be absurd: a small one, or one at an edge.
  int number() {
    static constexpr int kEdges[] = {-1, 0x7fffffff, -0x7fffffff - 1, 65536, 65535, 256, 255, 128, 64, 33, 32, 31, 1000,
                                     -5, 0,          10'000'000};
    const std::uint8_t which = byte();
    return which < 240 ? which - 8 : kEdges[which - 240];
  }

 private:
  std::string_view left_;
};

}  // namespace ddp::fuzz
