// SPDX-License-Identifier: BSD-3-Clause
// One message over a Unix socket that keeps messages apart (SOCK_SEQPACKET), with descriptors.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/descriptor.hpp"

namespace ddp::rendezvous {

inline constexpr std::size_t kMostDescriptors = 200;  // in a message; the kernel's limit is 253

// Sends the message. Returns false with the reason in errno: E2BIG if it has more than kMostDescriptors.
bool send_with_descriptors(int socket, const std::string& text, const std::vector<int>& descriptors);

struct DescriptorMessage {
  std::string text;  // empty: the other side has closed the connection
  std::vector<Descriptor> descriptors;
};
// Returns the next message without waiting, or nothing with the reason in errno.
std::optional<DescriptorMessage> receive_with_descriptors(int socket);

}  // namespace ddp::rendezvous
