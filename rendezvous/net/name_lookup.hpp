// SPDX-License-Identifier: BSD-3-Clause
// A host name's addresses, looked up without blocking the caller's loop: getaddrinfo runs on a thread of its own, which
// nobody waits for (a slow name server can hold it for a minute) and which the end of the process does not wait for
// either. A numeric address needs no thread and no name server.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/net/asio.hpp"

namespace ddp::rendezvous {

struct FoundAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// One lookup; make another for the next one. Used from the loop's thread only.
class NameLookup {
 public:
  // Begins; port goes into the addresses. What is wrong with the name is an outcome, see error(); throws
  // std::runtime_error only if there is no file descriptor.
  NameLookup(asio::io_context& io, const std::string& host, std::uint16_t port);
  ~NameLookup();
  NameLookup(const NameLookup&) = delete;
  NameLookup& operator=(const NameLookup&) = delete;

  // Calls done once, on the loop, when there is an outcome. Not if this goes first.
  template <typename Done>
  void async_wait(Done done) {
    finished_.async_wait(asio::posix::stream_descriptor::wait_read,
                         [done = std::move(done)](const boost::system::error_code& error) {
                           if (error != asio::error::operation_aborted) done();
                         });
  }

  bool is_finished() const;
  // Once finished: in the system's order of preference, and why there are none: "Name or service not known".
  const std::vector<FoundAddress>& addresses() const;
  const std::string& error() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  asio::posix::stream_descriptor finished_;  // of an eventfd that shared_ owns
};

}  // namespace ddp::rendezvous
