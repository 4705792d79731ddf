// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/gpu/nccl_abort.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "rendezvous/base/thread.hpp"

namespace ddp::collectives {
namespace {

class Aborts {
 public:
  ~Aborts() { wait(); }

  void add(const std::shared_ptr<NcclAbort>& abort) {
    const std::lock_guard lock(mutex_);
    underway_.push_back(abort);
  }
  void wait() {
    std::vector<std::shared_ptr<NcclAbort>> underway;
    {
      const std::lock_guard lock(mutex_);
      underway.swap(underway_);
    }
    for (const auto& abort : underway) abort->wait();
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<NcclAbort>> underway_;
};

std::atomic<bool> has_begun_one{false};

// Made by the first abort: what NCCL and the driver have made by then is destroyed after it.
Aborts& aborts() {
  static Aborts all;
  return all;
}

}  // namespace

std::shared_ptr<NcclAbort> NcclAbort::begin(const NcclApi& api, const CudaDevice& device, NcclCommunicator* comm) {
  const auto abort = std::make_shared<NcclAbort>();
  aborts().add(abort);
  has_begun_one = true;
  rendezvous::start_thread("ddp-nccl-abort", [api, cuda = device.api(), context = device.context(), comm, abort] {
    CudaContext* popped = nullptr;
    cuda.context_push(context);
    api.comm_abort(comm);
    cuda.context_pop(&popped);
    abort->set_returned();
  }).detach();
  return abort;
}

void NcclAbort::wait_for_all() {
  if (has_begun_one) aborts().wait();
}

bool NcclAbort::wait(Clock::time_point until) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, std::min(until, latest_), [&] { return returned_; });
}

void NcclAbort::set_returned() {
  const std::lock_guard lock(mutex_);
  returned_ = true;
  changed_.notify_all();
}

}  // namespace ddp::collectives
