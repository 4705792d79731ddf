// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/wire/frame.hpp"

#include <algorithm>

#include "rendezvous/base/length_bytes.hpp"

namespace ddp::rendezvous {

std::string to_frame(FrameKind kind, std::string_view payload) {
  std::string frame;
  frame.reserve(kLengthBytes + kFrameHead + payload.size());
  append_length(frame, kFrameHead + payload.size());
  return frame.append({static_cast<char>(kind), kWireVersion}).append(payload);
}

void FrameReader::add(std::string_view bytes) {
  bytes_.erase(0, std::exchange(taken_, 0));
  if (bytes_.empty() && bytes_.capacity() > kKeptBytes) bytes_.shrink_to_fit();  // thousands of links live for days
  bytes_ += bytes;
}

std::variant<NeedMore, Frame, Malformed> FrameReader::next() {
  const std::string_view bytes = std::string_view(bytes_).substr(taken_);
  if (bytes.size() < kLengthBytes + kFrameHead) return NeedMore{};
  const std::size_t length = length_at_begin(bytes);
  const char kind = bytes[kLengthBytes], version = bytes[kLengthBytes + 1];
  const auto number = [](char byte) { return std::to_string(static_cast<unsigned char>(byte)); };
  if (length < kFrameHead) return Malformed{"a frame of " + std::to_string(length) + " bytes"};
  if (version != kWireVersion) {
    return Malformed{"a frame of version " + number(version) + ", and this ddprun reads version " +
                     number(kWireVersion) + " (is all of ddprun and libddp of one release?)"};
  }
  const auto limit = std::find_if(limits_.begin(), limits_.end(),
                                  [kind](const FrameLimit& one) { return static_cast<char>(one.kind) == kind; });
  if (limit == limits_.end()) return Malformed{"a frame of the unknown kind " + number(kind)};
  if (length - kFrameHead > limit->most) {
    return Malformed{"a frame of " + std::to_string(length) + " bytes, where at most " +
                     std::to_string(limit->most + kFrameHead) + " are allowed"};
  }
  if (bytes.size() < kLengthBytes + length) return NeedMore{};
  taken_ += kLengthBytes + length;
  return Frame{limit->kind, bytes.substr(kLengthBytes + kFrameHead, length - kFrameHead)};
}

}  // namespace ddp::rendezvous
