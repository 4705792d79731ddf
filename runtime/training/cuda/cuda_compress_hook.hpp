// SPDX-License-Identifier: BSD-3-Clause
// The hooks that send gradients as 16-bit floating point, for gradients on a GPU. All of it runs in the order of
// streams; the host does not wait:
//
//     start()    cast to 16 bits    on the current stream
//                average            NCCL's all_reduce of 16-bit elements, which divides before it adds
//     advance()  cast back          on the current stream, behind the average
//
// The casts give the CPU's bits. The hook for the CPU adds in 32 bits and rounds once; NCCL rounds each partial sum, so
// a result may differ from the CPU's by a rounding error of 16 bits for each rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/group/process_group.hpp"
#include "runtime/training/cuda/kernels.hpp"
#include "runtime/training/ddp/tensor_place.hpp"
#include "runtime/training/hooks/comm_hook.hpp"

namespace ddp::runtime {

class CudaCompressHook final : public CommHook {
 public:
  // dtype is DDP_FLOAT16 or DDP_BFLOAT16. Throws rendezvous::Error{System} where libddp has no kernels.
  CudaCompressHook(ProcessGroup& group, std::int32_t dtype);
  void prepare(const ddp_grad_bucket& bucket) override;
  void start(const ddp_grad_bucket& bucket) override;
  bool advance(const ddp_grad_bucket& bucket) override;

 private:
  struct Compressed {
    explicit Compressed(const TensorPlace& place) : order(place) {}
    TensorMemory elements = {};  // the bucket's, in 16 bits
    StreamOrder order;           // the next step's cast may be on another stream than the last one's
    std::uint64_t in_flight = 0;
  };

  void cast(const ddp_buffer& from, const ddp_buffer& to) const;
  ddp_buffer narrow(const Compressed& compressed, std::size_t count) const;

  ProcessGroup& group_;
  std::int32_t dtype_;
  TensorPlace place_;
  std::shared_ptr<const Kernels> kernels_;
  std::vector<Compressed> buckets_;
};

// Returns the hook of this kind for gradients on the group's GPU. kind is a ddp_builtin_comm_hook. Throws
// rendezvous::Error: InvalidArgument if there is no such hook, System where it needs kernels and libddp has none.
std::unique_ptr<CommHook> make_cuda_comm_hook(ProcessGroup& group, std::int32_t kind);

}  // namespace ddp::runtime
