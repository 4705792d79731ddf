// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/host_copy.hpp"

#include <algorithm>
#include <string>
#include <thread>

#include "rendezvous/base/error.hpp"
#include "runtime/device/current_stream.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;

constexpr std::size_t kBytesAtATime = std::size_t{16} << 20;
constexpr std::chrono::milliseconds kBetweenLooks{1};

}  // namespace

HostPieces::HostPieces(int device) : device_(collectives::cuda_api(), device) {
  device_.refuse_in_capture(current_stream(device), "copying tensors to the host");
  piece_ = std::make_unique<collectives::PinnedMemory>(device_, kBytesAtATime);
}

void HostPieces::for_each(const void* from, std::size_t size, const Use& use) const {
  for (std::size_t done = 0; done < size; done += kBytesAtATime) {
    const std::size_t now = std::min(kBytesAtATime, size - done);
    device_.download(piece_->get(), static_cast<const char*>(from) + done, now, current_stream(device()));
    use(piece_->get(), now);
  }
}

HostCopy::HostCopy(int device)
    : device_(collectives::cuda_api(), device), stream_(device_), made_(device_), done_(device_) {}

char* HostCopy::reserve(std::size_t bytes) {
  device_.refuse_in_capture(current_stream(device()), "copying tensors to the host");
  if (memory_ != nullptr && bytes <= size_) return memory_->get();
  memory_.reset();
  memory_ = std::make_unique<collectives::PinnedMemory>(device_, std::max<std::size_t>(bytes, 1));
  size_ = bytes;
  return memory_->get();
}

void HostCopy::begin() {
  made_.record(current_stream(device()));
  made_.block(stream_.get());
}

void HostCopy::add(char* to, const void* from, std::size_t size) {
  device_.start_download(to, from, size, stream_.get());
}

void HostCopy::end() { done_.record(stream_.get()); }

void HostCopy::follow() const { done_.block(current_stream(device())); }

void HostCopy::wait(Deadline deadline) const {
  while (!done_.is_reached()) {
    if (std::chrono::steady_clock::now() >= deadline) {
      throw Error(ErrorCode::Timeout, "the copy from cuda:" + std::to_string(device()) +
                                          " has not ended: the work before it on the stream has not");
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace ddp::runtime
