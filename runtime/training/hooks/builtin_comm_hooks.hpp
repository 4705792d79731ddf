// SPDX-License-Identifier: BSD-3-Clause
// The communication hooks that libddp brings along, but for PowerSGD.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/group/process_group.hpp"
#include "runtime/training/hooks/comm_hook.hpp"

namespace ddp::runtime {

// The plain average, as without a hook.
class AllReduceHook final : public CommHook {
 public:
  explicit AllReduceHook(ProcessGroup& group) : group_(group) {}
  void start(const ddp_grad_bucket& bucket) override;
  bool advance(const ddp_grad_bucket& bucket) override;

 private:
  ProcessGroup& group_;
  std::vector<std::uint64_t> in_flight_;  // per bucket
};

// Gradients travel as 16-bit floating point. An all_reduce of such would travel as 32-bit in memory of the CPU,
// whatever the backend; so each rank averages one part of them, and tells the others:
//
//     start()    rank r gets part r of every rank      all_to_all
//     advance()  its average goes to every rank        all_gather
//     advance()  and is widened
//
// Buckets that are not wider than that go as they are.
class CompressHook final : public CommHook {
 public:
  // dtype: DDP_FLOAT16 or DDP_BFLOAT16
  CompressHook(ProcessGroup& group, std::int32_t dtype) : group_(group), dtype_(dtype) {}
  void start(const ddp_grad_bucket& bucket) override;
  bool advance(const ddp_grad_bucket& bucket) override;

 private:
  enum class Stage { Plain, Averaging, Gathering };
  struct Compressed {
    Stage stage = Stage::Plain;
    std::vector<std::uint16_t> elements;  // of the bucket, and zeros that make all parts of one length
    std::vector<std::uint16_t> received;  // this rank's part of every rank
    std::vector<std::uint16_t> average;   // of that part
    std::uint64_t in_flight = 0;
  };

  ddp_buffer buffer_of(std::vector<std::uint16_t>& elements) const;
  void start_compressed(Compressed& compressed, const ddp_buffer& gradients);

  ProcessGroup& group_;
  std::int32_t dtype_;
  std::vector<Compressed> buckets_;
};

// kind: ddp_builtin_comm_hook. Throws rendezvous::Error: InvalidArgument.
std::unique_ptr<CommHook> make_builtin_comm_hook(ProcessGroup& group, std::int32_t kind);

// Issues the average of buffer over the group's ranks; returns its sequence number.
std::uint64_t issue_average(ProcessGroup& group, const ddp_buffer& buffer);

// count elements of float32 or float64 at `wide` to 16-bit ones and back.
void compress(std::int32_t from, const void* wide, std::int32_t to, std::uint16_t* narrow, std::size_t count);
void decompress(std::int32_t from, const std::uint16_t* narrow, std::int32_t to, void* wide, std::size_t count);
// The average of as many 16-bit parts as ranks, one behind the other in `parts`: each times 1/ranks, then summed in
// their order, rounded once.
void average_parts(std::int32_t dtype, const std::uint16_t* parts, int ranks, std::uint16_t* average,
                   std::size_t count);

}  // namespace ddp::runtime
