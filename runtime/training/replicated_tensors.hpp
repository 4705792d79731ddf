// SPDX-License-Identifier: BSD-3-Clause
// Tensors of which every rank has a copy, parameters and buffers: are they the same everywhere, and how one rank's
// values get to all others. Collective functions; memory of the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ddp/ddp.h"
#include "runtime/src/process_group.hpp"

namespace ddp::runtime {

struct ReplicatedTensor {
  std::string name;  // "parameter 3 (fc1.weight)"
  void* data = nullptr;
  std::size_t count = 0;
  std::int32_t dtype = DDP_FLOAT32;
  std::vector<std::int64_t> shape;  // {count} if the caller gave none

  std::size_t bytes() const { return count * dtype_size(dtype); }
};
using ReplicatedTensors = std::vector<ReplicatedTensor>;

// kind: "parameter" or "buffer". Throws rendezvous::Error{InvalidArgument}.
ReplicatedTensors replicated(const char* kind, const ddp_parameter* tensors, std::size_t count);

// A number on which all ranks must agree.
struct Agreed {
  const char* before;  // "the model has "
  std::int64_t value;
  const char* after;   // " parameters"
  const char* advice;  // "every rank must build the same model"
};
// The first of them on which a rank differs from rank 0 is an error, Mismatch, on every rank.
void compare_numbers(ProcessGroup& group, const std::vector<Agreed>& numbers);
// As many of them on every rank. The first that differs in type or shape is an error, Mismatch, on every rank.
void compare_shapes(ProcessGroup& group, const ReplicatedTensors& tensors);
bool holds_on_all_ranks(ProcessGroup& group, bool here);
// Runs check, which looks at this rank alone. What it throws, InvalidArgument, comes out of this on every rank, so that
// none goes on to wait for one that has stopped.
void check_on_all_ranks(ProcessGroup& group, const std::function<void()>& check);

// Small tensors travel together, in memory that stays for the next time.
class TensorBroadcast {
 public:
  void run(ProcessGroup& group, const ReplicatedTensors& tensors, int root);

 private:
  void send_packed(ProcessGroup& group, const ReplicatedTensor* first, const ReplicatedTensor* last, int root);

  std::vector<std::byte> packed_;
};

}  // namespace ddp::runtime
