// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/tree/relayed.hpp"

#include <cstring>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/length_bytes.hpp"

namespace ddp::launcher {
namespace {

constexpr char kOfHosts[] = "hoexfc";
constexpr char kAboutHosts[] = "lap";

bool is_one_of(char kind, const char* kinds) { return kind != '\0' && std::strchr(kinds, kind) != nullptr; }

}  // namespace

bool may_be_relayed(FrameKind kind) { return is_one_of(static_cast<char>(kind), kOfHosts); }

std::string to_relayed(std::size_t host, FrameKind kind, std::string_view payload) {
  std::string text;
  rendezvous::append_length(text, host);
  text += static_cast<char>(kind);
  return text.append(payload);
}

Relayed relayed_from(std::string_view text) {
  const char kind = text.size() < kRelayedPrefix ? '\0' : text[kRelayedPrefix - 1];
  if (!is_one_of(kind, kOfHosts) && !is_one_of(kind, kAboutHosts)) {
    throw rendezvous::Error(rendezvous::ErrorCode::Corrupt, "a frame of another host that no host sends");
  }
  return {rendezvous::length_at_begin(text), {static_cast<FrameKind>(kind), std::string(text.substr(kRelayedPrefix))}};
}

}  // namespace ddp::launcher
