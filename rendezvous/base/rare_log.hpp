// SPDX-License-Identifier: BSD-3-Clause
// Log lines that strangers on the network can cause as often as they like: at most one a second is written, and it says
// how many were left out since the one before. Owned and called by one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

namespace ddp::rendezvous {

class RareLog {
 public:
  // Without `log` nothing is written.
  explicit RareLog(std::function<void(const std::string&)> log) : log_(std::move(log)) {}

  // Both return whether the line was written.
  bool write(const std::string& line) {
    return write([&line] { return line; });
  }
  // For a line that takes long to make: `make` is called only if the line is written.
  template <typename Make>
  requires std::is_invocable_r_v<std::string, Make>
  bool write(const Make& make) {
    const auto now = std::chrono::steady_clock::now();
    if (!log_ || now < next_line_) {
      ++left_out_;
      return false;
    }
    std::string line = make();
    if (left_out_ > 0) line += " (and " + std::to_string(left_out_) + " more since the last such line)";
    next_line_ = now + std::chrono::seconds(1);
    left_out_ = 0;
    log_(line);
    return true;
  }

 private:
  std::function<void(const std::string&)> log_;
  std::chrono::steady_clock::time_point next_line_;
  std::uint64_t left_out_ = 0;
};

}  // namespace ddp::rendezvous
