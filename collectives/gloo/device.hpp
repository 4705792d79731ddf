// SPDX-License-Identifier: BSD-3-Clause
// Gloo's TCP device: the thread that serves the connections of a group. Three habits of it made most of what forming
// and leaving a group takes; they are mended here and in the functions of libc that Gloo finds in gloo_device.cpp.
#pragma once

#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/loop.h>

#include <memory>
#include <mutex>

#include "rendezvous/base/descriptor.hpp"

namespace ddp::collectives {

// Whoever closes a connection waits until the thread has gone round once more, and so does whoever ends the device. By
// itself it goes round every 10 ms: half a second for a group of 64. A timer that it serves makes it go round sooner.
class GlooDevice final : gloo::transport::tcp::Handler {
 public:
  // A numeric address: Gloo would resolve the host's name, which on Debian is a loopback address.
  explicit GlooDevice(const char* numeric_address);
  // After the last use of what was connected through it, or it takes those 10 ms.
  ~GlooDevice() override;
  GlooDevice(const GlooDevice&) = delete;
  GlooDevice& operator=(const GlooDevice&) = delete;

  std::shared_ptr<gloo::transport::Device>& device() { return device_; }
  // Some rounds from now on: somebody is about to wait for one.
  void wake_loop();

 private:
  GlooDevice() = default;
  void handleEvents(int events) override;
  void set_timer(long first_ns, long then_ns) const;

  std::shared_ptr<gloo::transport::Device> device_;
  rendezvous::Descriptor timer_;  // none: Gloo keeps its own pace
  std::mutex mutex_;
  int rounds_ = 0;
  bool ending_ = false;
};

}  // namespace ddp::collectives
