// SPDX-License-Identifier: BSD-3-Clause
// Memory for a worker to keep: the agent's, if ddprun has the option --keep-memory, else memory of this process alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/kept/kept_core.hpp"

namespace ddp::runtime {

// A mapping that ends with the object.
class Mapping {
 public:
  Mapping() = default;
  // Maps a file, or zeroed memory without one. Throws rendezvous::Error.
  Mapping(int file, std::size_t bytes, bool may_write);
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;

  std::byte* at(std::size_t offset) const { return static_cast<std::byte*>(start_) + offset; }
  explicit operator bool() const { return start_ != nullptr; }

 private:
  void* start_ = nullptr;
  std::size_t bytes_ = 0;
};

struct KeptOffer {
  Mapping memory;
  bool outlives_process = false;
  rendezvous::GoOn go_on = rendezvous::GoOn::Nowhere;
  std::int64_t step = rendezvous::kNoStep;
  rendezvous::Descriptor source = {};  // memory whose tensors this one is to take; none: it has them
  // Memory with the parts of the shadow, in their order, from which this one is to take its tensors; none: not.
  std::vector<rendezvous::Descriptor> parts = {};
};

// Asks the agent for `bytes` under this name. Throws rendezvous::Error, also if the agent refuses.
KeptOffer ask_for_kept_memory(const std::string& name, std::size_t bytes);

// Copies bytes from another worker's kept memory, or from what an earlier process has kept. Throws rendezvous::Error.
void read_kept(int file, std::byte* to, std::size_t bytes, std::size_t offset);

// Copies the first bytes of the tensors that an earlier process of this worker has kept under this name, whole or not.
// Returns how many were there; none if nothing was kept, or by another release. Throws rendezvous::Error.
std::size_t read_kept_memory(const std::string& name, void* to, std::size_t bytes);

}  // namespace ddp::runtime
