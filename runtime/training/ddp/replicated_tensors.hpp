// SPDX-License-Identifier: BSD-3-Clause
// Tensors of which every rank has a copy: parameters and buffers. Checks that they are alike on all
// ranks, and copies one rank's values to all others. Everything except replicated() is collective.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ddp/ddp.h"
#include "runtime/base/buffer.hpp"
#include "runtime/group/process_group.hpp"
#include "runtime/training/ddp/host_exchange.hpp"
#include "runtime/training/ddp/tensor_place.hpp"

namespace ddp::runtime {

struct ReplicatedTensor {
  std::string name;  // "parameter 3 (fc1.weight)"
  TensorPlace place;
  void* data = nullptr;
  std::size_t count = 0;
  std::int32_t dtype = DDP_FLOAT32;
  std::vector<std::int64_t> shape;  // {count} if the caller gave none

  std::size_t bytes() const { return count * dtype_size(dtype); }
};
using ReplicatedTensors = std::vector<ReplicatedTensor>;

// Returns the caller's tensors in checked form. kind is "parameter" or "buffer". Throws
// rendezvous::Error{InvalidArgument}, also for memory that the group does not reach.
ReplicatedTensors replicated(const ProcessGroup& group, const char* kind, const ddp_parameter* tensors,
                             std::size_t count);

// A number on which all ranks must agree, with the words for the error message.
struct Agreed {
  const char* before;  // "the model has "
  std::int64_t value;
  const char* after;   // " parameters"
  const char* advice;  // "every rank must build the same model"
};
// Throws Mismatch on every rank if a rank differs from rank 0; the message names the first number
// that differs.
void compare_numbers(HostExchange& exchange, const std::vector<Agreed>& numbers);
// Throws Mismatch on every rank if a tensor has another type or shape than on rank 0; the message
// names the first one. The number of tensors must be equal on all ranks.
void compare_shapes(HostExchange& exchange, const ReplicatedTensors& tensors);
bool holds_on_all_ranks(HostExchange& exchange, bool here);
// Runs check, which examines this rank alone. An InvalidArgument that it throws on any rank is
// thrown by this function on every rank, so that none goes on to wait for one that has stopped.
void check_on_all_ranks(HostExchange& exchange, const std::function<void()>& check);

// Broadcasts tensors. Small ones travel together, in memory that is kept for the next time.
class TensorBroadcast {
 public:
  void run(ProcessGroup& group, const ReplicatedTensors& tensors, int root);

 private:
  struct Packed {
    TensorMemory memory;
    std::optional<StreamOrder> order;
  };
  void send_packed(ProcessGroup& group, const ReplicatedTensor* first, const ReplicatedTensor* last, int root);

  std::array<Packed, 2> packed_;  // for tensors on the CPU, for tensors on the GPU
};

}  // namespace ddp::runtime
