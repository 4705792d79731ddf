// SPDX-License-Identifier: BSD-3-Clause
// One GPU as libddp uses it: retains its primary context, which the CUDA runtime uses too, and makes streams, events
// and a little memory there. Functions throw rendezvous::Error unless they return a status.
//
// Threads: any. A thread that gives work to NCCL holds issuing(): all groups of a process that share a GPU must start
// their operations in the same order on every rank, so one thread at a time starts one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "collectives/gpu/cuda_api.hpp"

namespace ddp::collectives {

// Returns "what: why", or "" for CudaResult::Success.
std::string cuda_failure(const CudaApi& api, CudaResult result, const char* what);

class CudaDevice {
 public:
  // `index` counts the devices that this process may use (CUDA_VISIBLE_DEVICES).
  CudaDevice(const CudaApi& api, int index);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  // Returns the number of devices that this process may use. Throws if there is no driver or it does not start.
  static int count(const CudaApi& api);

  const CudaApi& api() const { return api_; }
  int index() const { return index_; }
  CudaContext* context() const { return context_; }
  std::mutex& issuing() { return issuing_; }

  // Returns a number of the CUDA graph that is captured from the stream; 0 if none is.
  std::uint64_t capture_of(CudaStream* stream) const;
  // Throws rendezvous::Error{InvalidArgument}, "WHAT: not while a CUDA graph is captured", if one is.
  void refuse_in_capture(CudaStream* stream, const std::string& what) const;

  // Work on this device's memory in the stream's order. upload() and download() block until they are done.
  void copy(void* to, const void* from, std::size_t size, CudaStream* stream) const;
  void clear(void* at, std::size_t size, CudaStream* stream) const;
  void upload(void* to, const void* from, std::size_t size, CudaStream* stream) const;
  void synchronize(CudaStream* stream) const;  // the host waits
  void download(void* to, const void* from, std::size_t size, CudaStream* stream) const;
  // Puts a copy to PinnedMemory on the stream; the host does not wait.
  void start_download(void* to, const void* from, std::size_t size, CudaStream* stream) const;

 private:
  const CudaApi& api_;
  int index_;
  int handle_ = 0;
  CudaContext* context_ = nullptr;
  std::mutex issuing_;
};

// Makes the device's context this thread's current one while it lives.
class CurrentDevice {
 public:
  explicit CurrentDevice(const CudaDevice& device) : api_(device.api()) { api_.context_push(device.context()); }
  ~CurrentDevice() {
    CudaContext* popped = nullptr;
    api_.context_pop(&popped);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  const CudaApi& api_;
};

// While it lives, this thread may call functions such as the query of an event although a CUDA graph is captured, by
// whatever thread. Without it the driver would end that capture.
class BesideCaptures {
 public:
  explicit BesideCaptures(const CudaApi& api) : api_(api) { api_.thread_exchange_capture_mode(&mode_); }
  ~BesideCaptures() { api_.thread_exchange_capture_mode(&mode_); }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  const CudaApi& api_;
  CudaCaptureMode mode_ = CudaCaptureMode::Relaxed;  // from the constructor on: what the thread's was
};

// A stream of the highest priority next to the caller's, since communication should not wait for kernels issued later.
class SideStream {
 public:
  explicit SideStream(const CudaDevice& device);
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;
  CudaStream* get() const { return stream_; }
  // Returns whether all work on it has ended, well or not.
  bool is_idle() const;

 private:
  const CudaDevice& device_;
  CudaStream* stream_ = nullptr;
};

class DeviceEvent {
 public:
  explicit DeviceEvent(const CudaDevice& device);
  ~DeviceEvent();
  DeviceEvent(const DeviceEvent&) = delete;
  DeviceEvent& operator=(const DeviceEvent&) = delete;
  CudaEvent* get() const { return event_; }
  // Marks the work that is on the stream now. An event that was never recorded marks nothing.
  void record(CudaStream* stream);
  // Makes work issued to the stream from now on wait for the marked work (cudaStreamWaitEvent).
  void block(CudaStream* stream) const;
  // Returns whether the marked work is done.
  bool is_reached() const;

 private:
  const CudaDevice& device_;
  CudaEvent* event_ = nullptr;
};

class DeviceMemory {
 public:
  DeviceMemory(const CudaDevice& device, std::size_t size);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  void* get() const { return reinterpret_cast<void*>(address_); }

 private:
  const CudaDevice& device_;
  std::uint64_t address_ = 0;
};

// Memory of the host that a GPU copies to while the host goes on.
class PinnedMemory {
 public:
  PinnedMemory(const CudaDevice& device, std::size_t size);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  char* get() const { return static_cast<char*>(memory_); }

 private:
  const CudaDevice& device_;
  void* memory_ = nullptr;
};

}  // namespace ddp::collectives
