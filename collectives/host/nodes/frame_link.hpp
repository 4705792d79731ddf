// SPDX-License-Identifier: BSD-3-Clause
// What collectives send each other over one link: frames, each with the number of the collective that it belongs to and
// its length in front. Both sides know which frame is next, so a frame of something else means that the ranks disagree.
//
// Frames are queued and move when pump() is called. Memory to send from or receive into is the caller's and stays valid
// until the frame is done. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "collectives/host/nodes/network.hpp"

namespace ddp::collectives {

class FrameLink {
 public:
  FrameLink(Network& network, std::uint32_t peer) : network_(network), peer_(peer) {}

  std::uint32_t peer() const { return peer_; }
  // Queues a frame. `owned`, if not empty, is what is sent.
  void send(std::uint64_t call, const unsigned char* data, std::size_t bytes, std::vector<unsigned char> owned = {});
  // Queues a frame, and returns its number among those received, from 1.
  std::uint64_t receive(std::uint64_t call, unsigned char* to, std::size_t bytes);

  // Moves what can move. Throws Failure if the other side calls something else.
  void pump();
  std::uint64_t received() const { return received_; }
  bool has_unsent() const { return !outgoing_.empty(); }
  bool is_busy() const { return !outgoing_.empty() || !incoming_.empty(); }
  bool is_broken() const { return link_ != nullptr && link_->is_broken(); }
  // Nothing is to move any more.
  void abandon();

  // What poll() should wait for; the descriptor is -1 while there is none.
  int descriptor() const { return link_ != nullptr ? link_->descriptor() : -1; }
  short events() const;
  // Buffers of frames that were sent, to use again.
  std::vector<unsigned char> spare(std::size_t bytes);

 private:
  struct Header {
    std::uint64_t call, bytes;
  };
  struct Frame {
    Header header;
    unsigned char* memory;
    std::size_t moved = 0;  // with the header
    std::vector<unsigned char> owned;
    std::size_t size() const { return sizeof header + header.bytes; }
  };
  void find_link();
  void pump_out();
  void pump_in();

  Network& network_;
  const std::uint32_t peer_;
  Link* link_ = nullptr;
  std::deque<Frame> outgoing_, incoming_;
  Header arrived_ = {};  // header of the first of `incoming_`
  std::uint64_t received_ = 0;
  std::vector<std::vector<unsigned char>> spare_;
};

}  // namespace ddp::collectives
