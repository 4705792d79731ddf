// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/frame.hpp"

#include <cstring>

namespace ddp::launcher {
namespace {

constexpr std::size_t kPrefix = 5;

bool is_known(char kind) { return kind != '\0' && std::strchr("HBbshoexfr", kind) != nullptr; }

std::size_t most_in(char kind) {
  const auto is = [kind](FrameKind other) { return kind == static_cast<char>(other); };
  if (is(FrameKind::Header) || is(FrameKind::Share)) return kMostInHeader;
  return kMostInFrame + (is(FrameKind::Relayed) ? kRelayedPrefix : 0);
}

}  // namespace

std::string to_frame(FrameKind kind, std::string_view payload) {
  std::string frame(1, static_cast<char>(kind));
  for (int shift = 24; shift >= 0; shift -= 8) frame += static_cast<char>((payload.size() >> shift) & 0xff);
  return frame.append(payload);
}

std::variant<NeedMore, Frame, Malformed> FrameReader::next() {
  if (bytes_.empty()) return NeedMore{};
  const char kind = bytes_[0];
  if (!is_known(kind))
    return Malformed{"a frame of the unknown kind " + std::to_string(static_cast<unsigned char>(kind))};
  if (bytes_.size() < kPrefix) return NeedMore{};
  std::size_t length = 0;
  for (std::size_t i = 1; i < kPrefix; ++i) length = length << 8 | static_cast<unsigned char>(bytes_[i]);
  const std::size_t most = most_in(kind);
  if (length > most) {
    return Malformed{"a frame of " + std::to_string(length) + " bytes, where at most " + std::to_string(most) +
                     " are allowed"};
  }
  if (bytes_.size() < kPrefix + length) return NeedMore{};
  Frame frame{static_cast<FrameKind>(kind), bytes_.substr(kPrefix, length)};
  bytes_.erase(0, kPrefix + length);
  return frame;
}

}  // namespace ddp::launcher
