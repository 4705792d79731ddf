// SPDX-License-Identifier: BSD-3-Clause
// What passes between the head and the ddprun on a host, once the latter has greeted (greeting.hpp): frames of a kind
// (1 byte), the length of the payload (4 bytes, the highest first) and the payload.
//
//     'o' 00 00 00 03 "hi\n"        a worker has written "hi\n" to stdout
//
//     head to host   H job_header   b beat (empty)   s signal (a number as text)
//     host to head   h Hello   o bytes of stdout   e bytes of stderr   x exit code (as text)   f why it cannot go on
//                    c exit code, blank, why its part of the job cannot begin   R bytes of the job's report
//
// Both ends are the same build of ddprun, so the format may change with every version.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace ddp::launcher {

enum class FrameKind : char {
  Header = 'H',
  Beat = 'b',
  Signal = 's',
  Hello = 'h',
  Stdout = 'o',
  Stderr = 'e',
  Exit = 'x',
  Failed = 'f',
  CannotBegin = 'c',
  Report = 'R',
};

// A header may have more than a kernel takes as arguments and environment.
inline constexpr std::size_t kMostInHeader = 4 << 20;
inline constexpr std::size_t kMostInFrame = 256 << 10;  // for each other kind

std::string to_frame(FrameKind kind, std::string_view payload);

struct Frame {
  FrameKind kind;
  std::string payload;
};
struct NeedMore {};
struct Malformed {
  std::string why;
};

// Takes frames apart. After Malformed it has no more.
class FrameReader {
 public:
  void add(std::string_view bytes) {
    bytes_.erase(0, std::exchange(taken_, 0));
    bytes_ += bytes;
  }
  std::variant<NeedMore, Frame, Malformed> next();

 private:
  std::string bytes_;
  std::size_t taken_ = 0;  // bytes of frames that were returned; add() erases them together
};

}  // namespace ddp::launcher
