// SPDX-License-Identifier: BSD-3-Clause
// DistributedDataParallel's driver: owns the buckets' memory, moves gradients in and out, issues the reductions that
// reducer_core decides on. Parameters' values change in the constructor only; gradients of the caller's change in
// synchronize(), after every reduction of the step has succeeded.
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ddp/ddp.h"
#include "runtime/src/process_group.hpp"
#include "runtime/training/reducer_core.hpp"

namespace ddp::runtime {

class Model {
 public:
  // Collective. Throws rendezvous::Error: InvalidArgument, Mismatch, or a failed collective's.
  Model(ProcessGroup& group, const ddp_parameter* parameters, std::size_t count, std::size_t first_bucket_bytes,
        std::size_t bucket_bytes);
  ~Model();  // in the middle of a step it aborts the group: buckets in flight use memory that is about to go
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  void* gradient(std::size_t i);
  void mark_ready(std::size_t i);
  void synchronize();
  void set_no_sync(bool enabled) { core_.set_no_sync(enabled); }
  std::size_t bucket_count() const { return buckets_.size(); }

 private:
  struct Parameter {
    void* value;
    void* grad;  // the caller's, or null
    std::size_t count;
    std::int32_t dtype;
    std::string name;
    std::byte* in_bucket;  // where this gradient lies in its bucket
    std::size_t bytes() const { return count * dtype_size(dtype); }
  };
  struct Bucket {
    std::vector<std::byte> memory;  // operator new aligns it for every element type
    std::size_t count = 0;
    std::int32_t dtype = DDP_FLOAT32;
  };

  static std::vector<Parameter> checked(const ddp_parameter* parameters, std::size_t count);
  static std::vector<PlannedBucket> plan(const std::vector<Parameter>& parameters, std::size_t first_bucket_bytes,
                                         std::size_t bucket_bytes);
  static std::vector<std::string> names(const std::vector<Parameter>& parameters);
  void compare_across_ranks();
  void broadcast_values();
  void launch(std::size_t bucket);

  ProcessGroup& group_;
  std::vector<Parameter> parameters_;
  std::vector<PlannedBucket> plan_;
  ReducerCore core_;
  std::vector<Bucket> buckets_;
  std::vector<std::uint64_t> in_flight_;  // sequence numbers of this step's reductions
  std::vector<std::size_t> to_launch_;    // reused
};

}  // namespace ddp::runtime
