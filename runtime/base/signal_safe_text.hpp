// SPDX-License-Identifier: BSD-3-Clause
// Text that a signal handler writes: no allocation and no locks, only system calls and memory that exists already.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace ddp::runtime {

// Text in a buffer of fixed size. Drops what does not fit.
class FixedText {
 public:
  FixedText(char* memory, std::size_t size) : memory_(memory), size_(size) {}

  FixedText& add(std::string_view text) {
    const std::size_t length = std::min(text.size(), size_ - used_);
    memcpy(memory_ + used_, text.data(), length);
    used_ += length;
    return *this;
  }
  FixedText& add_number(std::uint64_t number, unsigned base = 10) {
    char digits[24];
    char* first = digits + sizeof digits;
    do {
      *--first = "0123456789abcdef"[number % base];
      number /= base;
    } while (number != 0);
    return add({first, static_cast<std::size_t>(digits + sizeof digits - first)});
  }
  // Adds text as part of a JSON string.
  FixedText& add_escaped(std::string_view text) {
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (size_ - used_ < 2) break;
      if (c == '\n') {
        add("\\n");
      } else if (c == '"' || c == '\\') {
        add("\\").add({&c, 1});
      } else {
        add(byte < 0x20 || byte > 0x7e ? "?" : std::string_view(&c, 1));  // file names may contain any bytes
      }
    }
    return *this;
  }
  void grow(std::size_t more) { size_ += more; }
  std::string_view text() const { return {memory_, used_}; }

 private:
  char* memory_;
  std::size_t size_;
  std::size_t used_ = 0;
};

// Returns false, with the reason in errno, if not all could be written.
inline bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace ddp::runtime
