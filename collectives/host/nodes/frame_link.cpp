// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/nodes/frame_link.hpp"

#include <poll.h>

#include <array>
#include <utility>

#include "collectives/host/failure.hpp"

namespace ddp::collectives {
namespace {

constexpr std::size_t kFramesAtOnce = 8;

// Appends what is left of a piece of memory.
std::size_t add_rest(std::array<iovec, 2 * kFramesAtOnce>& parts, std::size_t count, void* memory, std::size_t bytes,
                     std::size_t moved) {
  if (moved >= bytes) return count;
  parts[count] = {static_cast<char*>(memory) + moved, bytes - moved};
  return count + 1;
}

}  // namespace

void FrameLink::send(std::uint64_t call, const unsigned char* data, std::size_t bytes,
                     std::vector<unsigned char> owned) {
  Frame& frame = outgoing_.emplace_back(Frame{{call, bytes}, const_cast<unsigned char*>(data), 0, std::move(owned)});
  if (!frame.owned.empty()) frame.memory = frame.owned.data();
}

std::uint64_t FrameLink::receive(std::uint64_t call, unsigned char* to, std::size_t bytes) {
  incoming_.emplace_back(Frame{{call, bytes}, to, 0, {}});
  return received_ + incoming_.size();
}

void FrameLink::pump() {
  if (!is_busy()) return;
  if (link_ == nullptr) find_link();
  if (link_ == nullptr || !link_->is_open()) return;
  pump_out();
  pump_in();
}

// The higher one of two ranks connects.
void FrameLink::find_link() {
  if (network_.layout().rank > peer_) {
    link_ = &network_.connect(peer_, LinkPurpose::Collectives);
  } else {
    link_ = network_.find(peer_, LinkPurpose::Collectives);
  }
}

void FrameLink::pump_out() {
  while (!outgoing_.empty()) {
    std::array<iovec, 2 * kFramesAtOnce> parts;
    std::size_t count = 0, wanted = 0;
    for (std::size_t i = 0; i < outgoing_.size() && i < kFramesAtOnce; ++i) {
      Frame& frame = outgoing_[i];
      count = add_rest(parts, count, &frame.header, sizeof frame.header, frame.moved);
      const std::size_t moved = frame.moved > sizeof frame.header ? frame.moved - sizeof frame.header : 0;
      count = add_rest(parts, count, frame.memory, frame.header.bytes, moved);
      wanted += frame.size() - frame.moved;
    }
    std::size_t some = link_->write(parts.data(), count);
    const bool took_all = some == wanted;
    while (!outgoing_.empty() && some >= outgoing_.front().size() - outgoing_.front().moved) {
      some -= outgoing_.front().size() - outgoing_.front().moved;
      if (!outgoing_.front().owned.empty()) spare_.push_back(std::move(outgoing_.front().owned));
      outgoing_.pop_front();
    }
    if (took_all) continue;
    outgoing_.front().moved += some;
    return;
  }
}

void FrameLink::pump_in() {
  while (!incoming_.empty()) {
    Frame& frame = incoming_.front();
    std::array<iovec, 2 * kFramesAtOnce> parts;
    std::size_t count = add_rest(parts, 0, &arrived_, sizeof arrived_, frame.moved);
    const std::size_t moved = frame.moved > sizeof arrived_ ? frame.moved - sizeof arrived_ : 0;
    count = add_rest(parts, count, frame.memory, frame.header.bytes, moved);
    const std::size_t some = link_->read(parts.data(), count);
    frame.moved += some;
    if (frame.moved >= sizeof arrived_ &&
        (arrived_.call != frame.header.call || arrived_.bytes != frame.header.bytes)) {
      throw ranks_disagree(peer_, network_.layout().rank);
    }
    if (frame.moved < frame.size()) {
      if (some == 0) return;
      continue;
    }
    incoming_.pop_front();
    ++received_;
  }
}

void FrameLink::abandon() {
  outgoing_.clear();
  incoming_.clear();
  if (link_ != nullptr) link_->shut_down();
}

short FrameLink::events() const {
  if (link_ == nullptr || link_->is_broken()) return 0;
  if (const short wanted = link_->events_to_open(); wanted != 0) return wanted;
  return static_cast<short>((outgoing_.empty() ? 0 : POLLOUT) | (incoming_.empty() ? 0 : POLLIN));
}

std::vector<unsigned char> FrameLink::spare(std::size_t bytes) {
  std::vector<unsigned char> buffer;
  if (!spare_.empty()) {
    buffer = std::move(spare_.back());
    spare_.pop_back();
  }
  buffer.resize(bytes);
  return buffer;
}

}  // namespace ddp::collectives
