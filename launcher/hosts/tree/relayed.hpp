// SPDX-License-Identifier: BSD-3-Clause
// What a host passes on from the hosts that it has started: the payload of FrameKind::Relayed. It is the host's node
// rank (4 bytes, the highest first), the kind of the frame (1 byte) and its payload.
//
//     00 00 00 07 'o' "hi\n"        a worker of the host with node rank 7 has written "hi\n"
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "launcher/hosts/wire/frame.hpp"

namespace ddp::launcher {

struct Relayed {
  std::size_t host;
  Frame frame;
};

// Whether a host sends frames of this kind of its own, which are passed on.
bool may_be_relayed(FrameKind kind);

std::string to_relayed(std::size_t host, FrameKind kind, std::string_view payload);
// Throws rendezvous::Error with what is wrong.
Relayed relayed_from(std::string_view text);

}  // namespace ddp::launcher
