// SPDX-License-Identifier: BSD-3-Clause
// Gloo's TCP device: the thread that serves the connections of a group. Three of its habits caused most of the time
// that forming and leaving a group took. This class, and the libc functions that device.cpp puts in their place, mend
// them.
#pragma once

#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/loop.h>

#include <memory>
#include <mutex>

#include "rendezvous/base/descriptor.hpp"

namespace ddp::collectives {

// A thread that closes a connection, or ends the device, waits until the device's thread has finished one more round of
// its event loop. By itself the loop runs every 10 ms, which makes half a second for a group of 64. A timer registered
// with the loop makes it run sooner.
class GlooDevice final : gloo::transport::tcp::Handler {
 public:
  // Takes a numeric address, since Gloo would resolve the host's name, which on Debian gives a loopback address.
  explicit GlooDevice(const char* numeric_address);
  // Call it after the last connection made through this device is gone, or it takes those 10 ms.
  ~GlooDevice() override;
  GlooDevice(const GlooDevice&) = delete;
  GlooDevice& operator=(const GlooDevice&) = delete;

  std::shared_ptr<gloo::transport::Device>& device() { return device_; }
  // Makes the event loop run some rounds soon: a thread is about to wait for one.
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
