// SPDX-License-Identifier: BSD-3-Clause
// Copies of device memory on the host. Both kinds begin behind the work that is on the calling thread's current stream.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

#include "collectives/gpu/cuda_device.hpp"

namespace ddp::runtime {

// Brings device memory to the host piece by piece, through pinned memory. The host waits.
class HostPieces {
 public:
  using Use = std::function<void(const char* bytes, std::size_t size)>;

  explicit HostPieces(int device);

  int device() const { return device_.index(); }
  // Calls use(bytes, size) for one piece after the other.
  void for_each(const void* from, std::size_t size, const Use& use) const;

 private:
  collectives::CudaDevice device_;
  std::unique_ptr<collectives::PinnedMemory> piece_;
};

// Copies from one GPU's memory to pinned memory of the host, on a stream of its own, while both go on:
//
//     current stream   -- step --.------------------------.-- what changes the tensors --
//                                 \ begin()               / follow()
//     copies' stream               '-- add() ... end() -- '      wait(): the host, on another thread
//
// One thread at a time.
class HostCopy {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  explicit HostCopy(int device);

  int device() const { return device_.index(); }
  // Returns at least this many bytes of pinned memory, which stay for the next time; what was there is lost.
  char* reserve(std::size_t bytes);
  void begin();
  void add(char* to, const void* from, std::size_t size);
  void end();
  // Makes the current stream wait for the copies. The host does not wait.
  void follow() const;
  // The host waits. Throws rendezvous::Error: Timeout, or System if the GPU has failed.
  void wait(Deadline deadline) const;

 private:
  collectives::CudaDevice device_;
  collectives::SideStream stream_;
  collectives::DeviceEvent made_;
  collectives::DeviceEvent done_;
  std::unique_ptr<collectives::PinnedMemory> memory_;
  std::size_t size_ = 0;
};

}  // namespace ddp::runtime
