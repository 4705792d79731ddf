// SPDX-License-Identifier: BSD-3-Clause
// The init_method URL of torch.distributed, which says where the ranks of a job meet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ddp::runtime {

struct InitMethod {
  enum class Kind {
    Env,  // "env://", or an empty URL: read the environment
    Tcp,  // "tcp://host:port", "tcp://[fd00::1]:port": the address of the store
    File  // "file:///path": the store is this file, which all ranks can open
  };
  Kind kind = Kind::Env;
  std::string url;  // as given
  std::string host;
  std::uint16_t port = 0;
  std::string path;
  // From "?rank=3&world_size=8" after any of them. Kept as text, since read_worker_info() parses all settings alike.
  std::optional<std::string> rank;
  std::optional<std::string> world_size;
};

// Throws rendezvous::Error quoting what is wrong, and in which URL.
InitMethod parse_init_method(const std::string& url);

}  // namespace ddp::runtime
