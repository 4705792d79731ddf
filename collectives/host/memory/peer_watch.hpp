// SPDX-License-Identifier: BSD-3-Clause
// The thread that learns of the ends of other ranks' processes. A process has one for all of its groups; it sleeps
// until a lifeline becomes readable, so waits need not look at those. It also holds this process's liveness words.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "collectives/host/memory/liveness.hpp"
#include "rendezvous/base/descriptor.hpp"

namespace ddp::collectives {

class PeerWatch {
 public:
  // Returns this process's watch, which ends with its last owner. Throws Failure or rendezvous::Error.
  static std::shared_ptr<PeerWatch> of_this_process();
  PeerWatch();
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // Calls `ended` once on the watch's thread when the lifeline becomes readable. Returns a number for forget(), after
  // which `ended` does not run any more.
  std::uint64_t watch(rendezvous::Descriptor lifeline, std::function<void()> ended);
  // Calls `serve` on the watch's thread whenever the descriptor is readable. It stays the caller's, open until
  // forget().
  std::uint64_t watch_always(int descriptor, std::function<void()> serve);
  void forget(std::uint64_t number);

  // The liveness words of this process, which the watch's thread holds.
  HeldWords& words() { return words_; }

 private:
  struct Watched {
    rendezvous::Descriptor lifeline;  // none: `descriptor` is somebody else's
    int descriptor = -1;
    std::function<void()> ended;
  };
  void run();

  rendezvous::Descriptor events_, end_;
  HeldWords words_;
  std::mutex mutex_;
  std::map<std::uint64_t, Watched> watched_;
  std::uint64_t next_ = 1;  // 0 is the end
  std::thread thread_;      // declared last: it uses all the others
};

}  // namespace ddp::collectives
