// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/ddp/tensor_place.hpp"

#include <cstring>

#include "runtime/device/current_stream.hpp"
#include "runtime/group/process_group.hpp"

namespace ddp::runtime {

ddp_device TensorPlace::device() const {
  return is_gpu() ? ddp_device{DDP_CUDA, gpu_->index()} : ddp_device{DDP_CPU, 0};
}

collectives::CudaStream* TensorPlace::stream() const { return current_stream(gpu_->index()); }

void TensorPlace::copy(void* to, const void* from, std::size_t size) const {
  if (to == from || size == 0) return;
  if (is_gpu()) return gpu_->copy(to, from, size, stream());
  std::memcpy(to, from, size);
}

void TensorPlace::clear(void* at, std::size_t size) const {
  if (size == 0) return;
  if (is_gpu()) return gpu_->clear(at, size, stream());
  std::memset(at, 0, size);
}

TensorMemory::TensorMemory(const TensorPlace& place, std::size_t size, ProcessGroup* group) : size_(size) {
  if (size == 0) return;  // the CUDA driver refuses an allocation of 0 bytes
  if (place.is_gpu()) {
    on_gpu_ = std::make_unique<collectives::DeviceMemory>(place.gpu(), size);
  } else if (group != nullptr) {
    on_cpu_ = {static_cast<std::byte*>(group->allocate(size)), Free{group}};
    return;  // zeros already
  } else {
    on_cpu_ = {static_cast<std::byte*>(::operator new(size)), Free{nullptr}};
  }
  place.clear(data(), size);
}

TensorMemory::TensorMemory(const TensorPlace& place, std::size_t size, std::unique_ptr<collectives::NcclMemory> of_nccl)
    : of_nccl_(std::move(of_nccl)), size_(size) {
  place.clear(data(), size);
}

void TensorMemory::Free::operator()(std::byte* memory) const {
  group != nullptr ? group->free(memory) : ::operator delete(memory);
}

StreamOrder::StreamOrder(const TensorPlace& place) : place_(place) {
  if (place.is_gpu()) left_ = std::make_unique<collectives::DeviceEvent>(place.gpu());
}

void StreamOrder::enter() {
  if (left_ == nullptr || !last_ || *last_ == place_.stream()) return;
  if (place_.gpu().capture_of(place_.stream()) == capture_) left_->block(place_.stream());
}

void StreamOrder::leave() {
  if (left_ == nullptr) return;
  last_ = place_.stream();
  capture_ = place_.gpu().capture_of(*last_);
  left_->record(*last_);
}

}  // namespace ddp::runtime
