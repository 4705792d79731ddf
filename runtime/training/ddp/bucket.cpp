// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/ddp/bucket.hpp"

#include <utility>

#include "runtime/base/scale.hpp"

namespace ddp::runtime {

Bucket::Bucket(const TensorPlace& place, std::int32_t dtype, std::vector<ddp_grad_slice> slices, TensorMemory memory)
    : place_(place), dtype_(dtype), slices_(std::move(slices)), memory_(std::move(memory)), order_(place) {
  for (ddp_grad_slice& slice : slices_) {
    slice.offset = count_;
    count_ += slice.count;
  }
  order_.leave();
}

void Bucket::put(std::size_t slice, const void* from, double factor) {
  if (factor != 1) return scale(at(slice), from, slices_[slice].count, dtype_, factor);
  order_.enter();
  place_.copy(at(slice), from, bytes(slice));
  order_.leave();
}

void Bucket::put_zeros(std::size_t slice) {
  order_.enter();
  place_.clear(at(slice), bytes(slice));
  order_.leave();
}

void Bucket::take(std::size_t slice, void* to) {
  order_.enter();
  place_.copy(to, at(slice), bytes(slice));
  order_.leave();
}

}  // namespace ddp::runtime
