// SPDX-License-Identifier: BSD-3-Clause
// The coordinator's side of new agent links: takes connections whose first byte said "agent link" from the store's
// thread, shakes hands on another, and hands over those that are agents of this job. What a stranger's handshake costs
// (a key exchange, a question to munged) does not delay the coordinator's own thread.
//
//     StoreServer ── accept(fd, first bytes), any thread ──▶ handshake, within kHandshakeLimit ──▶ on_link
//                                                               └─ refused: closed, logged at most once a second
//
// A stranger costs a descriptor and about 1 KiB for at most kHandshakeLimit.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/link/stream.hpp"
#include "rendezvous/membership/membership.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::rendezvous {

inline constexpr std::chrono::seconds kHandshakeLimit{5};
// Twice the 4,000 agents that may come at once; less where few files may be open. One more handshake ends the oldest of
// the address that has most: an agent's takes milliseconds, so the old ones are strangers'.
inline constexpr std::size_t kMaxPendingHandshakes = 8192;

// An agent that has proved itself.
struct AcceptedLink {
  Descriptor socket;
  std::string first_bytes;  // received already, for LinkStream::start()
  std::optional<LinkCipher> cipher;
  std::string address;     // the agent's, numeric, v4-mapped as v4
  std::string arrived_at;  // this machine's, to which the agent came
};

class LinkAcceptor {
 public:
  struct Options {
    Membership membership = {};
    JobTag job = {};
    std::chrono::milliseconds limit = kHandshakeLimit;
    std::size_t max_pending = kMaxPendingHandshakes;
    // Receives lines such as "agent link: refused 10.0.0.9:4711: its secret differs".
    std::function<void(const std::string& line)> log = {};
    // Goes with each line of the log: the address without its port, and "its secret differs".
    std::function<void(const std::string& address, const std::string& why)> on_refused = {};
  };
  using OnLink = std::function<void(AcceptedLink)>;

  // on_link and log are called on the thread that runs io.
  LinkAcceptor(asio::io_context& io, Options options, OnLink on_link);
  // Call it on that thread, or while no thread runs io. Closes pending handshakes, and connections that accept() has
  // posted but not begun.
  ~LinkAcceptor();
  LinkAcceptor(const LinkAcceptor&) = delete;
  LinkAcceptor& operator=(const LinkAcceptor&) = delete;

  // Begins a handshake on a non-blocking CLOEXEC socket. Any thread may call it while this object exists, so end the
  // StoreServer first.
  void accept(Descriptor socket, std::string first_bytes);

 private:
  class Loop;
  std::shared_ptr<Loop> loop_;
};

}  // namespace ddp::rendezvous
