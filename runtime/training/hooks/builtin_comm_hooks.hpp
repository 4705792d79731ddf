// SPDX-License-Identifier: BSD-3-Clause
// libddp's built-in communication hooks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/group/process_group.hpp"
#include "runtime/training/hooks/comm_hook.hpp"

namespace ddp::runtime {

// Computes the plain average, as without a hook.
class AllReduceHook final : public CommHook {
 public:
  explicit AllReduceHook(ProcessGroup& group) : group_(group) {}
  void start(const ddp_grad_bucket& bucket) override;
  bool advance(const ddp_grad_bucket& bucket) override;

 private:
  ProcessGroup& group_;
  std::vector<std::uint64_t> in_flight_;  // per bucket: the sequence number of its reduction
};

// Sends gradients as 16-bit floating point. An all_reduce of 16-bit elements in CPU memory would
// send 32 bits each, with every backend; so each rank averages one part of the gradients and sends
// its average to the others:
//
//     start()    rank r receives part r from every rank      all_to_all
//     advance()  its average goes to every rank              all_gather
//     advance()  every rank widens the averages
//
// Buckets whose elements are no wider than 16 bits are averaged as they are.
class CompressHook final : public CommHook {
 public:
  // dtype is DDP_FLOAT16 or DDP_BFLOAT16.
  CompressHook(ProcessGroup& group, std::int32_t dtype) : group_(group), dtype_(dtype) {}
  void start(const ddp_grad_bucket& bucket) override;
  bool advance(const ddp_grad_bucket& bucket) override;

 private:
  enum class Stage { Plain, Averaging, Gathering };
  struct Compressed {
    Stage stage = Stage::Plain;
    std::vector<std::uint16_t> elements;  // the bucket's, then zeros that make all parts equally long
    std::vector<std::uint16_t> received;  // this rank's part, from every rank
    std::vector<std::uint16_t> average;   // average of this rank's part
    std::uint64_t in_flight = 0;
  };

  ddp_buffer buffer_of(std::vector<std::uint16_t>& elements) const;
  void start_compressed(Compressed& compressed, const ddp_buffer& gradients);

  ProcessGroup& group_;
  std::int32_t dtype_;
  std::vector<Compressed> buckets_;
};

// kind is a ddp_builtin_comm_hook. Throws rendezvous::Error{InvalidArgument}.
std::unique_ptr<CommHook> make_builtin_comm_hook(ProcessGroup& group, std::int32_t kind);

// Convert count elements between float32 or float64 at `wide` and a 16-bit type at `narrow`.
void compress(std::int32_t from, const void* wide, std::int32_t to, std::uint16_t* narrow, std::size_t count);
void decompress(std::int32_t from, const std::uint16_t* narrow, std::int32_t to, void* wide, std::size_t count);
// Averages `ranks` parts of 16-bit elements that lie one after the other in `parts`: each is
// multiplied by 1/ranks, then they are added in the order of ranks, and the sum is rounded once.
void average_parts(std::int32_t dtype, const std::uint16_t* parts, int ranks, std::uint16_t* average,
                   std::size_t count);

}  // namespace ddp::runtime
