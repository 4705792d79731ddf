// SPDX-License-Identifier: BSD-3-Clause
// Base64 with padding, as etcd's JSON has keys and values.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ddp::rendezvous {

std::string base64_of(std::string_view bytes);

// Returns the bytes that the text stands for; nothing if it is not base64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace ddp::rendezvous
