// SPDX-License-Identifier: BSD-3-Clause
// What accept() of messages (accept.cpp) and of records (coordinator/core/accept_record.cpp) have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "rendezvous/link/printable.hpp"

namespace ddp::rendezvous {

inline constexpr int kMaxInt = std::numeric_limits<int>::max();
inline constexpr int kMaxExitCode = 255;
inline constexpr int kMaxNamedSignal = 31;
inline constexpr std::size_t kMaxLineBytes = 8192;  // the agent's own limit is lower

using Reason = std::optional<std::string>;

// Collects the first thing that is wrong.
class Check {
 public:
  void in_range(const char* name, std::int64_t value, std::int64_t low, std::int64_t high) {
    if (value < low || value > high) fail(std::string(name) + " is " + std::to_string(value));
  }
  void at_most(const char* name, std::size_t count, std::size_t most) {
    if (count > most) fail(std::string(name) + " has a size of " + std::to_string(count));
  }
  void holds(bool condition, const char* if_not) {
    if (!condition) fail(if_not);
  }
  void holds(const char* name, bool condition, const char* if_not) {
    if (!condition) fail(std::string(name) + if_not);
  }
  bool passed() const { return !reason_; }
  Reason reason() const { return reason_; }

 private:
  void fail(std::string reason) {
    if (!reason_) reason_ = std::move(reason);
  }
  Reason reason_;
};

// Makes words for people printable, and cuts them.
inline void make_line(std::string& line, std::size_t bytes = kMaxLineBytes) {
  line = cut_line(printable_line(std::string_view(line).substr(0, 2 * bytes)), bytes);
}

}  // namespace ddp::rendezvous
