// SPDX-License-Identifier: BSD-3-Clause
// Which backend serves which memory, as the user writes it.
#pragma once

#include <string>

namespace ddp::collectives {

// Empty: no backend for that memory.
struct BackendNames {
  std::string cpu;
  std::string cuda;

  bool operator==(const BackendNames&) const = default;
};

// "gloo" and "nccl" serve the memory they are for; any other name is that of a plug-in, which serves the CPU's.
// "cpu:NAME", "cuda:NAME", or both with a comma between, in any order. Empty: what is served when nobody says anything.
// Capitals do not matter, as in PyTorch. Throws rendezvous::Error quoting what is wrong.
BackendNames parse_backend_names(const std::string& text);

// As the user might have written it.
std::string to_string(const BackendNames& names);

}  // namespace ddp::collectives
