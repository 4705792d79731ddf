// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/bucket.hpp"

#include <cstring>
#include <utility>

namespace ddp::runtime {

Bucket::Bucket(std::int32_t dtype, std::vector<ddp_grad_slice> slices) : dtype_(dtype), slices_(std::move(slices)) {
  for (ddp_grad_slice& slice : slices_) {
    slice.offset = count_;
    count_ += slice.count;
  }
  memory_.resize(count_ * dtype_size(dtype_));
}

void Bucket::put(std::size_t slice, const void* from, double factor) {
  void* const to = at(slice);
  if (factor != 1) {
    scale(to, from, slices_[slice].count, dtype_, factor);
  } else if (to != from && bytes(slice) > 0) {
    std::memcpy(to, from, bytes(slice));
  }
}

void Bucket::put_zeros(std::size_t slice) {
  if (bytes(slice) > 0) std::memset(at(slice), 0, bytes(slice));
}

void Bucket::take(std::size_t slice, void* to) {
  if (to != at(slice) && bytes(slice) > 0) std::memcpy(to, at(slice), bytes(slice));
}

}  // namespace ddp::runtime
