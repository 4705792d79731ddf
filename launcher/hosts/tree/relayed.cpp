// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/tree/relayed.hpp"

#include <cstring>

#include "rendezvous/base/error.hpp"

namespace ddp::launcher {
namespace {

constexpr char kOfHosts[] = "hoexf";
constexpr char kAboutHosts[] = "lap";

bool is_one_of(char kind, const char* kinds) { return kind != '\0' && std::strchr(kinds, kind) != nullptr; }

}  // namespace

bool may_be_relayed(FrameKind kind) { return is_one_of(static_cast<char>(kind), kOfHosts); }

std::string to_relayed(std::size_t host, FrameKind kind, std::string_view payload) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>((host >> shift) & 0xff);
  text += static_cast<char>(kind);
  return text.append(payload);
}

Relayed relayed_from(std::string_view text) {
  const char kind = text.size() < kRelayedPrefix ? '\0' : text[kRelayedPrefix - 1];
  if (!is_one_of(kind, kOfHosts) && !is_one_of(kind, kAboutHosts)) {
    throw rendezvous::Error(rendezvous::ErrorCode::Corrupt, "a frame of another host that no host sends");
  }
  std::size_t host = 0;
  for (std::size_t i = 0; i < kRelayedPrefix - 1; ++i) host = host << 8 | static_cast<unsigned char>(text[i]);
  return {host, {static_cast<FrameKind>(kind), std::string(text.substr(kRelayedPrefix))}};
}

}  // namespace ddp::launcher
