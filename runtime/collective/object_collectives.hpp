// SPDX-License-Identifier: BSD-3-Clause
// Collectives on objects: any number of bytes per rank. For its group each is one operation. It consists of several
// plain ones: the ranks exchange the sizes first, then the bytes, without padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ddp/backend.h"
#include "runtime/collective/operation.hpp"

namespace ddp::runtime {

// What one rank sends and receives. The bytes to send belong to the caller and outlive the operation.
class ObjectExchange {
 public:
  // Sets what this rank sends: one object, one per rank for the root of scatter_object, or none.
  void give(std::vector<ddp_bytes> objects) { given_ = std::move(objects); }
  const std::vector<ddp_bytes>& given() const { return given_; }
  std::size_t given_bytes() const;

  // Allocates memory for received objects of these sizes, one after the other.
  std::uint8_t* allocate(const std::vector<std::size_t>& sizes);
  void receive_own(std::size_t index) { received_ = {given_.at(index)}; }
  const std::vector<ddp_bytes>& received() const { return received_; }

 private:
  std::vector<ddp_bytes> given_;
  std::unique_ptr<std::uint8_t[]> memory_;
  std::vector<ddp_bytes> received_;
};

// Performs a collective on plain memory.
using PerformPlain = std::function<ddp_backend_status(const Operation& operation)>;
// Performs a collective on objects by plain ones, and stops at the first that fails.
ddp_backend_status perform_object(const Operation& operation, GroupPlace place, const PerformPlain& perform,
                                  ddp_backend_error* error);
// Performs a collective on objects in a group of one.
void perform_object_alone(const Operation& operation);

}  // namespace ddp::runtime
