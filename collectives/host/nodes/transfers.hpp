// SPDX-License-Identifier: BSD-3-Clause
// The frames of a rank's collectives to and from ranks on other nodes. A frame moves while its rank is in a collective;
// a collective ends only once the kernel has taken all that it sends.
//
// One thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/host/memory/membership.hpp"
#include "collectives/host/memory/waiting.hpp"
#include "collectives/host/nodes/frame_link.hpp"
#include "collectives/host/nodes/network.hpp"

namespace ddp::collectives {

class Transfers {
 public:
  Transfers(Network& network, const Membership& membership) : network_(network), membership_(membership) {}

  // Begins a collective with this number.
  void start(std::uint64_t call, std::int64_t timeout_ms, int most_looks);

  void send(std::uint32_t peer, const unsigned char* data, std::size_t bytes);
  void send(std::uint32_t peer, std::vector<unsigned char> data);

  // A frame that is to come.
  struct Frame {
    FrameLink* link = nullptr;
    std::uint64_t number = 0;
  };
  Frame receive(std::uint32_t peer, unsigned char* to, std::size_t bytes);
  std::vector<unsigned char> spare(std::uint32_t peer, std::size_t bytes) { return to(peer).spare(bytes); }

  void wait_received(const Frame& frame);
  // Waits until nothing is left to send or receive.
  void finish();
  // Moves what can be moved. Returns whether something is left to send.
  bool pump();
  // Ends all transfers after an error: none touches its memory from then on.
  void abandon();

  // Called in every wait that takes long. Returns whether it wants to be called again soon.
  std::function<bool()> meanwhile = [] { return false; };

 private:
  FrameLink& to(std::uint32_t peer);
  template <typename Done>
  void wait(Done&& done);
  void blame_if_broken();
  void sleep(bool hurries) const;

  Network& network_;
  const Membership& membership_;
  std::map<std::uint32_t, FrameLink> links_;
  std::uint64_t call_ = 0;
  Patience patience_;
  Deadline deadline_{0};
  std::optional<std::chrono::steady_clock::time_point> broken_since_;
};

}  // namespace ddp::collectives
