// SPDX-License-Identifier: BSD-3-Clause
// Where tensors are, in the memory of the CPU or of one GPU, and what is done with their bytes there. On a GPU that is
// put on this thread's current stream, and the host does not wait for it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "collectives/gpu/cuda_device.hpp"
#include "ddp/ddp.h"

namespace ddp::runtime {

class TensorPlace {
 public:
  TensorPlace() = default;  // the CPU
  explicit TensorPlace(std::shared_ptr<collectives::CudaDevice> gpu) : gpu_(std::move(gpu)) {}

  ddp_device device() const;
  bool is_gpu() const { return gpu_ != nullptr; }
  const collectives::CudaDevice& gpu() const { return *gpu_; }
  collectives::CudaStream* stream() const;  // this thread's current one; of a GPU only

  void copy(void* to, const void* from, std::size_t size) const;
  void clear(void* at, std::size_t size) const;

 private:
  std::shared_ptr<collectives::CudaDevice> gpu_;  // null: the CPU
};

// Bytes at a place, zeros at first. To free those of a GPU waits for what is on its streams.
class TensorMemory {
 public:
  TensorMemory() = default;
  TensorMemory(const TensorPlace& place, std::size_t size);

  std::byte* data() const { return on_gpu_ ? static_cast<std::byte*>(on_gpu_->get()) : on_cpu_.get(); }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory); }
  };
  std::unique_ptr<std::byte, Free> on_cpu_;  // operator new aligns it for every element type
  std::unique_ptr<collectives::DeviceMemory> on_gpu_;
  std::size_t size_ = 0;
};

// Whoever uses a piece of a GPU's memory next, on whatever stream, does so after those before: between enter() and
// leave() this thread's current stream may. On the CPU it does nothing.
class StreamOrder {
 public:
  explicit StreamOrder(const TensorPlace& place);

  void enter();
  void leave();

 private:
  TensorPlace place_;
  std::unique_ptr<collectives::DeviceEvent> left_;
  std::optional<collectives::CudaStream*> last_;  // who recorded it
};

}  // namespace ddp::runtime
