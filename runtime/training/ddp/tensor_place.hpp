// SPDX-License-Identifier: BSD-3-Clause
// Where tensors are, in CPU memory or in the memory of one GPU, and copying and clearing their
// bytes there. On a GPU such work goes onto this thread's current stream, and the host does not
// wait for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "collectives/gpu/cuda_device.hpp"
#include "collectives/gpu/nccl_memory.hpp"
#include "ddp/ddp.h"

namespace ddp::runtime {

class ProcessGroup;

class TensorPlace {
 public:
  TensorPlace() = default;  // the CPU
  explicit TensorPlace(std::shared_ptr<collectives::CudaDevice> gpu) : gpu_(std::move(gpu)) {}

  ddp_device device() const;
  bool is_gpu() const { return gpu_ != nullptr; }
  const collectives::CudaDevice& gpu() const { return *gpu_; }
  collectives::CudaStream* stream() const;  // this thread's current stream; on a GPU only

  void copy(void* to, const void* from, std::size_t size) const;
  void clear(void* at, std::size_t size) const;

 private:
  std::shared_ptr<collectives::CudaDevice> gpu_;  // null: the CPU
};

// Memory at a place, zeros at first. Given a group, CPU memory is the group's, in which its collectives are fastest,
// and all ranks make it together. Freeing GPU memory waits for the work on that GPU's streams.
class TensorMemory {
 public:
  TensorMemory() = default;
  TensorMemory(const TensorPlace& place, std::size_t size, ProcessGroup* group = nullptr);
  // Takes over memory of NCCL's at this place.
  TensorMemory(const TensorPlace& place, std::size_t size, std::unique_ptr<collectives::NcclMemory> of_nccl);

  std::byte* data() const {
    if (of_nccl_) return static_cast<std::byte*>(of_nccl_->get());
    return on_gpu_ ? static_cast<std::byte*>(on_gpu_->get()) : on_cpu_.get();
  }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    ProcessGroup* group;  // null: operator new's memory, which is aligned for every element type
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> on_cpu_;
  std::unique_ptr<collectives::DeviceMemory> on_gpu_;
  std::unique_ptr<collectives::NcclMemory> of_nccl_;
  std::size_t size_ = 0;
};

// Keeps uses of one piece of GPU memory in order when they are on different streams: this thread's
// current stream may use the memory between enter() and leave(), and enter() makes it wait for the
// use before. Does nothing on the CPU. Uses inside and outside of the capture of a CUDA graph are
// the caller's to order: no wait can cross that border.
class StreamOrder {
 public:
  explicit StreamOrder(const TensorPlace& place);

  void enter();
  void leave();

 private:
  TensorPlace place_;
  std::unique_ptr<collectives::DeviceEvent> left_;
  std::optional<collectives::CudaStream*> last_;  // the stream that recorded left_
  std::uint64_t capture_ = 0;                     // the CUDA graph that was captured from it then; 0: none
};

}  // namespace ddp::runtime
