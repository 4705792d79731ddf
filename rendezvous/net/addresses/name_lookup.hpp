// SPDX-License-Identifier: BSD-3-Clause
// Looks up the addresses of hosts without blocking the caller's loop: getaddrinfo runs on a detached thread. A slow
// name server can hold that thread for a minute; neither the loop nor the end of the process waits for it. A numeric
// address needs no thread and no name server.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/net/asio.hpp"

namespace ddp::rendezvous {

struct FoundAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage); }
  std::uint16_t port() const;
  void set_port(std::uint16_t port);
};

// The addresses of a host; if there are none, why ("Name or service not known").
struct HostAddresses {
  std::vector<FoundAddress> addresses;
  std::string error;
};

// One lookup. Make a new object for each. Used from the loop's thread only.
class NameLookup {
 public:
  // For callers without a loop: blocks until the lookup has ended, or until SIGTERM or another signal that ends a
  // process is pending, which the caller has blocked; `error` then says so. Calls on_slow once if there is no answer
  // after 3 s.
  static HostAddresses wait_for(const std::string& host, const std::function<void()>& on_slow);

  // Starts the lookup. Names that cannot be resolved are an outcome, see error(); throws Error{System} only if there is
  // no file descriptor left.
  NameLookup(asio::io_context& io, const std::vector<std::string>& hosts, const std::vector<std::uint16_t>& ports);
  ~NameLookup();
  NameLookup(const NameLookup&) = delete;
  NameLookup& operator=(const NameLookup&) = delete;

  // Calls `done` once, on the loop, when there is an outcome; never if this object is destroyed first.
  template <typename Done>
  void async_wait(Done done) {
    finished_.async_wait(asio::posix::stream_descriptor::wait_read,
                         [done = std::move(done)](const boost::system::error_code& error) {
                           if (error != asio::error::operation_aborted) done();
                         });
  }

  bool is_finished() const;
  // Valid once finished: each host's addresses in the system's order of preference, all with the first port, then all
  // with the next; or why there are none ("Name or service not known").
  const std::vector<FoundAddress>& addresses() const;
  const std::string& error() const;

 private:
  struct Shared;
  static std::shared_ptr<Shared> start(const std::vector<std::string>& hosts, const std::vector<std::uint16_t>& ports);

  std::shared_ptr<Shared> shared_;
  asio::posix::stream_descriptor finished_;  // an eventfd that shared_ owns
};

}  // namespace ddp::rendezvous
