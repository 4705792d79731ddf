// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/cuda/cuda_compress_hook.hpp"

#include <algorithm>
#include <climits>

#include "runtime/base/buffer.hpp"
#include "runtime/training/hooks/builtin_comm_hooks.hpp"

namespace ddp::runtime {
namespace {

bool is_wider_than_16_bits(const ddp_buffer& buffer) { return dtype_size(buffer.dtype) > sizeof(std::uint16_t); }

}  // namespace

CudaCompressHook::CudaCompressHook(ProcessGroup& group, std::int32_t dtype)
    : group_(group), dtype_(dtype), place_(group.gpu()), kernels_(Kernels::of(place_.gpu().index())) {}

void CudaCompressHook::prepare(const ddp_grad_bucket& bucket) {
  while (bucket.index >= buckets_.size()) buckets_.emplace_back(place_);
  Compressed& compressed = buckets_[bucket.index];
  const std::size_t bytes = bucket.buffer.count * dtype_size(dtype_);
  if (!is_wider_than_16_bits(bucket.buffer) || bytes <= compressed.elements.size()) return;
  compressed.elements = TensorMemory(place_, bytes);
  compressed.order.leave();
}

void CudaCompressHook::start(const ddp_grad_bucket& bucket) {
  Compressed& compressed = buckets_[bucket.index];
  const ddp_buffer& gradients = bucket.buffer;
  if (!is_wider_than_16_bits(gradients)) {
    compressed.in_flight = issue_average(group_, gradients);
    return;
  }
  compressed.order.enter();
  cast(gradients, narrow(compressed, gradients.count));
  compressed.in_flight = issue_average(group_, narrow(compressed, gradients.count));
  compressed.order.leave();
}

bool CudaCompressHook::advance(const ddp_grad_bucket& bucket) {
  Compressed& compressed = buckets_[bucket.index];
  group_.wait(compressed.in_flight);
  if (!is_wider_than_16_bits(bucket.buffer)) return false;
  cast(narrow(compressed, bucket.buffer.count), bucket.buffer);
  compressed.order.leave();
  return false;
}

void CudaCompressHook::cast(const ddp_buffer& from, const ddp_buffer& to) const {
  if (from.count == 0) return;
  const std::size_t chunks = (from.count + kernels::kChunkElements - 1) / kernels::kChunkElements;
  const kernels::TensorEntry pair = {from.data,
                                     to.data,
                                     {nullptr, nullptr},
                                     from.count,
                                     static_cast<kernels::Type>(from.dtype),
                                     static_cast<kernels::Type>(to.dtype),
                                     0,
                                     0};
  kernels_->launch<kernel::cast>(static_cast<unsigned>(std::min<std::size_t>(chunks, INT_MAX)), {pair},
                                 place_.stream());
}

ddp_buffer CudaCompressHook::narrow(const Compressed& compressed, std::size_t count) const {
  return {compressed.elements.data(), count, dtype_, place_.device()};
}

std::unique_ptr<CommHook> make_cuda_comm_hook(ProcessGroup& group, std::int32_t kind) {
  switch (kind) {
    case DDP_FP16_COMPRESS_HOOK:
      return std::make_unique<CudaCompressHook>(group, DDP_FLOAT16);
    case DDP_BF16_COMPRESS_HOOK:
      return std::make_unique<CudaCompressHook>(group, DDP_BFLOAT16);
    default:
      return make_builtin_comm_hook(group, kind);  // no other computes
  }
}

}  // namespace ddp::runtime
