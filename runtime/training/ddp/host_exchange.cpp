// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/ddp/host_exchange.hpp"

#include "runtime/collective/make_operation.hpp"
#include "runtime/device/current_stream.hpp"

namespace ddp::runtime {
namespace {

// Makes another stream this thread's current one for the object's lifetime.
class OnStream {
 public:
  OnStream(int device, collectives::CudaStream* stream) : device_(device), before_(current_stream(device)) {
    set_current_stream(device, stream);
  }
  ~OnStream() { set_current_stream(device_, before_); }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  int device_;
  collectives::CudaStream* before_;
};

}  // namespace

HostExchange::HostExchange(ProcessGroup& group) : group_(group) {
  if (!group.reaches_host_memory()) detour_ = std::make_unique<Detour>(group.gpu());
}

ddp_buffer HostExchange::bytes(void* data, std::size_t size) const {
  return {data, size, DDP_UINT8, detour_ ? detour_->place.device() : ddp_device{DDP_CPU, 0}};
}

void HostExchange::broadcast(void* data, std::size_t size, int root) {
  const auto operation = [&](void* where) { return make_broadcast(bytes(where, size), root, group_.place()); };
  if (!detour_) return (void)group_.run(operation(data));
  take_detour(data, size, data, 0, size, operation);
}

void HostExchange::all_gather(const void* mine, std::size_t size, void* all) {
  const std::size_t total = size * static_cast<std::size_t>(group_.size());
  const auto operation = [&](void* from, void* to) {
    return make_all_gather(bytes(from, size), bytes(to, total), group_.place());
  };
  if (!detour_) return (void)group_.run(operation(const_cast<void*>(mine), all));
  take_detour(mine, size, all, size, total, [&](std::byte* there) { return operation(there, there + size); });
}

void HostExchange::all_reduce(std::uint8_t* data, std::size_t size, ddp_reduce_op op) {
  const auto operation = [&](void* where) { return make_all_reduce(bytes(where, size), {op, 0}); };
  if (!detour_) return (void)group_.run(operation(data));
  take_detour(data, size, data, 0, size, operation);
}

void HostExchange::take_detour(const void* data, std::size_t sent, void* result, std::size_t at, std::size_t received,
                               const std::function<Operation(std::byte* there)>& operation) {
  const collectives::CudaDevice& gpu = detour_->place.gpu();
  collectives::CudaStream* const stream = detour_->stream.get();
  const OnStream here(gpu.index(), stream);
  if (detour_->memory.size() < at + received) detour_->memory = TensorMemory(detour_->place, at + received);
  std::byte* const there = detour_->memory.data();
  gpu.upload(there, data, sent, stream);
  group_.synchronize(group_.issue(operation(there)));
  gpu.download(result, there + at, received, stream);
}

}  // namespace ddp::runtime
