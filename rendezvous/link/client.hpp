// SPDX-License-Identifier: BSD-3-Clause
// Keeps up an agent's link to the coordinator: resolves, connects, shakes hands, and does so again when the link
// breaks. Everything but name lookups happens on the thread that runs the io_context. No method calls a callback; a
// callback may call any method and may destroy the client.
//
//     start ─▶ trying ──────────────▶ up ─┐ on_up
//                ▲ └▶ on_unreachable      │ broken, or reconnect(): on_down
//                └──── waiting ◀──────────┘ 50 ms, doubling to 500 ms; 50 ms again once something was heard on a link
//     on_refused: other version or secret; the client has stopped, as after stop()
//
// One try is a lookup, and then a connection to each address in turn; each of the two parts takes at most
// LinkTiming::try_limit. Every try looks the name up again, since a restarted coordinator may have a new address.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/link/messages.hpp"
#include "rendezvous/membership/membership.hpp"
#include "rendezvous/net/asio.hpp"
#include "rendezvous/net/peer_user.hpp"

namespace ddp::rendezvous {

struct LinkTiming {
  std::chrono::milliseconds try_limit{5000};
  std::chrono::milliseconds shortest_wait{50};
  std::chrono::milliseconds longest_wait{500};
};

// Where the coordinator may be: on one of these hosts, at one of these ports. If there are several, `job` says which
// one is meant, and coordinators of other jobs are passed over.
struct LinkTarget {
  std::vector<std::string> hosts;    // names, or numeric addresses without brackets
  std::vector<std::uint16_t> ports;  // each of them is tried on every host before the next one
  std::optional<JobTag> job = {};
  bool any_user = false;  // a coordinator on this machine may be another user's, although it has proven nothing
};

class LinkClient {
 public:
  // Each `why` continues a sentence that names the coordinator ("connection refused"); on_refused's names it itself.
  struct Callbacks {
    // The link is up: send the whole state. coordinator_address: numeric, v4-mapped as v4; "" over a socketpair.
    std::function<void(const std::string& coordinator_address)> on_up;
    std::function<void(Directive)> on_message;
    std::function<void()> on_heartbeat;
    std::function<void(const std::string& why)> on_down;         // only after on_up; tries go on
    std::function<void(const std::string& why)> on_unreachable;  // a try failed; tries go on
    std::function<void(const std::string& why)> on_refused;      // tries are over
    std::function<void(LookRequest)> on_look_request = {};
    std::function<void(LookAnswer)> on_look_answer = {};
    std::function<void(LookEnd)> on_look_end = {};
    std::function<void(ClockReading)> on_clock = {};
  };

  // A link over TCP.
  LinkClient(asio::io_context& io, LinkTarget target, Membership membership, Callbacks callbacks,
             LinkTiming timing = {});
  // A link over one end of a socketpair: the coordinator is in this process. There is no handshake and no second try:
  // when the link breaks, on_down is the last callback. reconnect() does nothing.
  LinkClient(asio::io_context& io, Descriptor connected, Callbacks callbacks);
  // A link to a coordinator in another process of this node. `connect` hands over one end of a new pair of sockets and
  // returns the other; the link is up at once, and what is sent waits until a coordinator has taken its end.
  LinkClient(asio::io_context& io, std::function<Descriptor()> connect, Callbacks callbacks);
  ~LinkClient();  // as stop()
  LinkClient(const LinkClient&) = delete;
  LinkClient& operator=(const LinkClient&) = delete;

  void start();
  // Send a message, or drop it while the link is not up; on_up is where to send the state again.
  void send(const AgentState& state);
  void send(const Heartbeat& heartbeat);
  void send(const LookRequest& request);
  void send(const LookAnswer& answer);
  void send(const ClockReading& question);
  // Drops the link, if it is up (on_down(why) follows), and tries again at once.
  void reconnect(const std::string& why);
  // Ends the link at once; no callback follows. The kernel still delivers what was sent.
  void stop();

  // Returns the address of this end of the newest link: numeric, v4-mapped as v4; "" if there was none, and over a
  // socketpair.
  std::string local_address() const;
  // Returns both ends of the newest link; nothing if there was none, and over a socketpair.
  std::optional<ConnectionEnds> ends() const;
  // Returns the coordinator's port on the newest link; 0 if there was none, and over a socketpair.
  std::uint16_t coordinator_port() const;

 private:
  class Loop;
  std::shared_ptr<Loop> loop_;
};

}  // namespace ddp::rendezvous
