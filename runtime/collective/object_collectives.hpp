// SPDX-License-Identifier: BSD-3-Clause
// Collectives on objects: bytes, as many as each rank likes. To its group each is one operation; it is made of others:
// first the sizes go round, then the bytes, none of them padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "collectives/backend.h"
#include "runtime/collective/operation.hpp"

namespace ddp::runtime {

// What one rank gives and gets. The given bytes are the caller's and outlive the operation.
class ObjectExchange {
 public:
  // One object, or of scatter_object's root one for each rank; none of who has nothing to give.
  void give(std::vector<ddp_bytes> objects) { given_ = std::move(objects); }
  const std::vector<ddp_bytes>& given() const { return given_; }
  std::size_t given_bytes() const;

  // Memory for what comes, one object after the other.
  std::uint8_t* allocate(const std::vector<std::size_t>& sizes);
  void receive_own(std::size_t index) { received_ = {given_.at(index)}; }
  const std::vector<ddp_bytes>& received() const { return received_; }

 private:
  std::vector<ddp_bytes> given_;
  std::unique_ptr<std::uint8_t[]> memory_;
  std::vector<ddp_bytes> received_;
};

// These check what the caller passed and throw rendezvous::Error{InvalidArgument}. What a rank that gives nothing
// passes is not looked at. The exchange and the objects must outlive the operation.
Operation make_broadcast_object(ObjectExchange& exchange, const ddp_bytes& object, std::int32_t root, GroupPlace place);
Operation make_all_gather_object(ObjectExchange& exchange, const ddp_bytes& object);
Operation make_gather_object(ObjectExchange& exchange, const ddp_bytes& object, std::int32_t root, GroupPlace place);
Operation make_scatter_object(ObjectExchange& exchange, std::span<const ddp_bytes> objects, std::int32_t root,
                              GroupPlace place);

// perform: a collective on plain memory; these end at the first that fails.
using PerformPlain = std::function<ddp_backend_status(const Operation& operation)>;
ddp_backend_status perform_object(const Operation& operation, GroupPlace place, const PerformPlain& perform,
                                  ddp_backend_error* error);
// In a group of one.
void perform_object_alone(const Operation& operation);

}  // namespace ddp::runtime
