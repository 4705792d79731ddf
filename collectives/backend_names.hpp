// SPDX-License-Identifier: BSD-3-Clause
// The backends that serve CPU and CUDA memory, and how users write them.
#pragma once

#include <string>

namespace ddp::collectives {

// An empty name means that no backend serves that memory.
struct BackendNames {
  std::string cpu;
  std::string cuda;

  bool operator==(const BackendNames&) const = default;
};

// Parses a name alone, or "cpu:NAME", "cuda:NAME" or both in any order with a comma between. Alone, "nccl" serves CUDA
// memory and any other name ("ddp", "gloo" or a plug-in's) CPU memory. An empty text gives the default, ddp. Case is
// ignored, as in PyTorch. Throws rendezvous::Error quoting what is wrong.
BackendNames parse_backend_names(const std::string& text);

// Returns a text that parse_backend_names() reads back.
std::string to_string(const BackendNames& names);

}  // namespace ddp::collectives
