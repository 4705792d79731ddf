// SPDX-License-Identifier: BSD-3-Clause
// An agent's link to the coordinator, kept up: resolves, connects, shakes hands, and does it again when the link
// breaks. Everything happens on the thread that runs the io_context, but for name lookups. No callback is called from
// within a method; a callback may call any method, and destroy the client.
//
//     start ─▶ trying ──────────────▶ up ─┐ on_up
//                ▲ └▶ on_unreachable      │ broken, or reconnect(): on_down
//                └──── waiting ◀──────────┘ 50 ms, doubling to 1 s; 50 ms again once something was heard on a link
//     on_refused: other version or secret; over, as after stop()
//
// One try is a lookup and a connection to each address in turn, each of the two within LinkTiming::try_limit. Names are
// looked up again in every try: a coordinator that is started again may have a new address.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "rendezvous/link/messages.hpp"
#include "rendezvous/link/secret.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::rendezvous {

struct LinkTiming {
  std::chrono::milliseconds try_limit{5000};
  std::chrono::milliseconds shortest_wait{50};
  std::chrono::milliseconds longest_wait{1000};
};

class LinkClient {
 public:
  // Each `why` is for a sentence that names the coordinator: "connection refused"; on_refused's names it itself.
  struct Callbacks {
    // The link is there: send the whole state. coordinator_address: numeric, v4-mapped as v4; "" over a socketpair.
    std::function<void(const std::string& coordinator_address)> on_up;
    std::function<void(Directive)> on_message;
    std::function<void()> on_heartbeat;
    std::function<void(const std::string& why)> on_down;         // after on_up; tries go on
    std::function<void(const std::string& why)> on_unreachable;  // a try failed; tries go on
    std::function<void(const std::string& why)> on_refused;      // tries are over
  };

  // Over TCP. host: a name, or a numeric address without brackets.
  LinkClient(asio::io_context& io, std::string host, std::uint16_t port, std::optional<Secret> secret,
             Callbacks callbacks, LinkTiming timing = {});
  // Over one end of a socketpair, taken over: the coordinator is in this process. No handshake; when it breaks, on_down
  // and no more; reconnect() does nothing.
  LinkClient(asio::io_context& io, int connected_fd, Callbacks callbacks);
  ~LinkClient();  // as stop()
  LinkClient(const LinkClient&) = delete;
  LinkClient& operator=(const LinkClient&) = delete;

  void start();
  // Dropped while the link is not up: on_up is the place to send what counts.
  void send(const AgentState& state);
  void send(const Heartbeat& heartbeat);
  // Drops the link, if it is up (then on_down(why) follows), and tries again at once.
  void reconnect(const std::string& why);
  // At once; no callback after it. What was sent is left to the kernel to deliver.
  void stop();

  // Of this end of the newest link: numeric, v4-mapped as v4; "" if there was none, and over a socketpair.
  std::string local_address() const;

 private:
  class Loop;
  std::shared_ptr<Loop> loop_;
};

}  // namespace ddp::rendezvous
