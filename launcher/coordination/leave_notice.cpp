// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/coordination/leave_notice.hpp"

#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>
#include <variant>

#include "launcher/coordination/membership.hpp"
#include "rendezvous/link/client.hpp"
#include "rendezvous/link/codec.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::launcher {

namespace {

constexpr std::chrono::seconds kGiveUpAfter(1);
constexpr std::size_t kMaxStateBytes = 60 << 10;

}  // namespace

struct LeaveNotice::Page {
  Page() {}                              // leaves `state` as it is, so that it takes no memory before it is used
  std::atomic<std::uint32_t> length{0};  // bytes in `state`; 0: there is nothing to send
  std::uint16_t port = 0;
  char address[64] = "";
  char state[kMaxStateBytes];  // a frame of the agent link
};

LeaveNotice::LeaveNotice() = default;
LeaveNotice::~LeaveNotice() = default;

void LeaveNotice::prepare(const std::string& address, std::uint16_t port, const rendezvous::AgentState& state) {
  clear();  // an agent that is killed in the middle of this leaves nothing
  rendezvous::AgentState left = state;
  left.failures.clear();  // the coordinator knows them, and they may be large
  left.left = true;
  const std::string frame = rendezvous::encode(left);
  if (frame.size() > sizeof page_->state || address.empty() || address.size() >= sizeof page_->address) return;
  page_->port = port;
  memcpy(page_->address, address.c_str(), address.size() + 1);
  memcpy(page_->state, frame.data(), frame.size());
  page_->length.store(static_cast<std::uint32_t>(frame.size()), std::memory_order_release);
}

void LeaveNotice::clear() { page_->length.store(0, std::memory_order_seq_cst); }

// The address is numeric, so the link needs no thread to look it up. The coordinator closes it once it has read the
// message.
void LeaveNotice::send(const std::string& why, const LaunchConfig& config) const noexcept {
  const std::uint32_t length = page_->length.load(std::memory_order_acquire);
  if (length == 0) return;
  try {
    rendezvous::FrameDecoder decoder;
    decoder.feed({page_->state, length});
    const auto message = decoder.next();
    auto state = std::get<rendezvous::AgentState>(message);
    state.stopped_because = why;
    rendezvous::asio::io_context io{1};
    std::unique_ptr<rendezvous::LinkClient> link;
    const auto end = [&io](const std::string&) { io.stop(); };
    link = std::make_unique<rendezvous::LinkClient>(
        io, rendezvous::LinkTarget{.hosts = {page_->address}, .ports = {page_->port}, .any_user = config.any_user},
        find_membership(config).membership,
        rendezvous::LinkClient::Callbacks{.on_up = [&](const std::string&) { link->send(state); },
                                          .on_message = [](const rendezvous::Directive&) {},
                                          .on_heartbeat = [] {},
                                          .on_down = end,
                                          .on_unreachable = end,
                                          .on_refused = end});
    link->start();
    io.run_for(kGiveUpAfter);
  } catch (const std::exception&) {
    // The coordinator finds out by itself.
  }
}

}  // namespace ddp::launcher
