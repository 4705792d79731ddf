// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/nodes/transfers.hpp"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "collectives/host/failure.hpp"

namespace ddp::collectives {
namespace {

// A look asks the kernel, which takes as long as many looks at memory.
constexpr int kLooksAtMemory = 32;
constexpr int kSleepMs = 50, kSleepWithMessagesMs = 1;
// How long after the end of a link the loss that caused it may take to arrive.
constexpr std::chrono::milliseconds kUntilCauseArrives{1000};

}  // namespace

void Transfers::start(std::uint64_t call, std::int64_t timeout_ms, int most_looks) {
  call_ = call;
  deadline_ = Deadline(timeout_ms);
  const int most = most_looks / kLooksAtMemory;
  if (patience_.most != most) patience_ = {.most = most, .looks = most};
}

FrameLink& Transfers::to(std::uint32_t peer) { return links_.try_emplace(peer, network_, peer).first->second; }

void Transfers::send(std::uint32_t peer, const unsigned char* data, std::size_t bytes) {
  FrameLink& link = to(peer);
  link.send(call_, data, bytes);
  link.pump();
}

void Transfers::send(std::uint32_t peer, std::vector<unsigned char> data) {
  FrameLink& link = to(peer);
  const std::size_t bytes = data.size();
  link.send(call_, nullptr, bytes, std::move(data));
  link.pump();
}

Transfers::Frame Transfers::receive(std::uint32_t peer, unsigned char* to_memory, std::size_t bytes) {
  FrameLink& link = to(peer);
  return {&link, link.receive(call_, to_memory, bytes)};
}

void Transfers::wait_received(const Frame& frame) {
  wait([&] { return frame.link->received() >= frame.number; });
}

void Transfers::finish() {
  wait([&] {
    return std::none_of(links_.begin(), links_.end(), [](const auto& link) { return link.second.is_busy(); });
  });
}

bool Transfers::pump() {
  bool unsent = false;
  for (auto& [peer, link] : links_) {
    link.pump();
    unsent = unsent || link.has_unsent();
  }
  return unsent;
}

template <typename Done>
void Transfers::wait(Done&& done) {
  if (done()) return;
  bool hurries = false;
  const auto ready = [&] {
    pump();
    return done();
  };
  const auto check = [&] {
    hurries = meanwhile();
    if (membership_.check(std::nullopt, deadline_, ready)) return true;
    blame_if_broken();
    return false;
  };
  wait_until(patience_, ready, check, [&] { sleep(hurries); });
}

// A link breaks because its rank is lost, or because that rank has learnt of a loss first. Which it is comes by the
// links for losses, unless the rank that would tell is gone, too.
void Transfers::blame_if_broken() {
  for (const auto& [peer, link] : links_) {
    if (!link.is_busy() || !link.is_broken()) continue;
    const auto now = std::chrono::steady_clock::now();
    if (!broken_since_) broken_since_ = now;
    if (now - *broken_since_ > kUntilCauseArrives) membership_.lose(peer, LossReason::Died);
    return;
  }
}

void Transfers::sleep(bool hurries) const {
  std::vector<pollfd> events = {{network_.arrival_event(), POLLIN, 0}, {network_.alarm(), POLLIN, 0}};
  bool is_broken = false;
  for (const auto& [peer, link] : links_) {
    if (!link.is_busy()) continue;
    if (link.is_broken()) is_broken = true;
    if (const short wanted = link.events(); wanted != 0) events.push_back({link.descriptor(), wanted, 0});
  }
  // A loss that this wait does not end with was noted already.
  poll(events.data(), events.size(), hurries || is_broken ? kSleepWithMessagesMs : kSleepMs);
  if (events[0].revents != 0) network_.quiet();
}

void Transfers::abandon() {
  for (auto& [peer, link] : links_) link.abandon();
}

}  // namespace ddp::collectives
