// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/wire/frame.hpp"

#include <cstring>

#include "rendezvous/base/length_bytes.hpp"

namespace ddp::launcher {
namespace {

constexpr std::size_t kPrefix = 1 + rendezvous::kLengthBytes;

bool is_known(char kind) { return kind != '\0' && std::strchr("HbshoexfcR", kind) != nullptr; }

std::size_t most_in(char kind) { return kind == static_cast<char>(FrameKind::Header) ? kMostInHeader : kMostInFrame; }

}  // namespace

std::string to_frame(FrameKind kind, std::string_view payload) {
  std::string frame(1, static_cast<char>(kind));
  rendezvous::append_length(frame, payload.size());
  return frame.append(payload);
}

std::variant<NeedMore, Frame, Malformed> FrameReader::next() {
  const std::string_view bytes = std::string_view(bytes_).substr(taken_);
  if (bytes.empty()) return NeedMore{};
  const char kind = bytes[0];
  if (!is_known(kind))
    return Malformed{"a frame of the unknown kind " + std::to_string(static_cast<unsigned char>(kind))};
  if (bytes.size() < kPrefix) return NeedMore{};
  const std::size_t length = rendezvous::length_at_begin(bytes.substr(1));
  const std::size_t most = most_in(kind);
  if (length > most) {
    return Malformed{"a frame of " + std::to_string(length) + " bytes, where at most " + std::to_string(most) +
                     " are allowed"};
  }
  if (bytes.size() < kPrefix + length) return NeedMore{};
  taken_ += kPrefix + length;
  return Frame{static_cast<FrameKind>(kind), std::string(bytes.substr(kPrefix, length))};
}

}  // namespace ddp::launcher
