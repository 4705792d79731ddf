// SPDX-License-Identifier: BSD-3-Clause
// Where the page of the job is (--serve), and what proves that a visitor may see it. Plain values.
#pragma once

#include <cstdint>
#include <string>

namespace ddp::launcher {

struct PageConfig {
  std::string address;     // numeric
  std::uint16_t port = 0;  // 0: any free one
  std::string token_file;  // --serve-token; empty: none, and the address is loopback
};

}  // namespace ddp::launcher
