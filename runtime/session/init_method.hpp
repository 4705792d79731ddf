// SPDX-License-Identifier: BSD-3-Clause
// The URL that says where the ranks of a job meet, in torch.distributed's form.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ddp::runtime {

struct InitMethod {
  enum class Kind {
    Env,  // "env://", or nothing: what the environment says
    Tcp,  // "tcp://host:port", "tcp://[fd00::1]:port": the store is there
    File  // "file:///path": it is a file that all ranks can open
  };
  Kind kind = Kind::Env;
  std::string url;  // as it was given
  std::string host;
  std::uint16_t port = 0;
  std::string path;
  // "?rank=3&world_size=8" behind any of them; as text, to be read with what else says so.
  std::optional<std::string> rank;
  std::optional<std::string> world_size;
};

// Throws rendezvous::Error quoting what is wrong, and in which URL.
InitMethod parse_init_method(const std::string& url);

}  // namespace ddp::runtime
