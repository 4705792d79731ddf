// SPDX-License-Identifier: BSD-3-Clause
// Finds out which user's process is at the other end of a TCP connection within this machine. The kernel is asked, so
// no client has to take part. Owned and called by one thread; an answer takes some 3 µs.
//
// An answer counts only while the other process has its end open. Once that is closed, the kernel says user 0 for a
// connection of any user, although what was sent on it can still be read. And the port may belong to another user's
// next connection by then, which is why this end has to be alive after the answer, too.
#pragma once

#include <netinet/in.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include "rendezvous/base/descriptor.hpp"

namespace ddp::rendezvous {

std::string to_text(const in6_addr& address);  // numeric, a v4-mapped one as v4

// The two ends of a TCP connection; IPv4 addresses are v4-mapped.
struct ConnectionEnds {
  struct End {
    in6_addr address;
    std::uint16_t port;
    bool operator==(const End& other) const;
  };
  End local, peer;
};
std::optional<ConnectionEnds> ends_of(int socket);  // none if it is not TCP or no longer connected
// While this end of a connection is alive, no other connection can have the same two addresses and ports.
bool is_alive(int socket);

class PeerUsers {
 public:
  enum class Source { SockDiag, ProcNet, None };

  struct Elsewhere {};  // the other end is not on this machine
  struct Known {        // the user as this process's user namespace numbers it
    uid_t uid;
    std::uint64_t inode;  // the other end's socket has it
  };
  struct Gone {};        // the other end is on this machine, but no process has it open
  struct CannotTell {};  // the kernel does not say, see why_not()
  using Answer = std::variant<Elsewhere, Known, Gone, CannotTell>;

  // Asks NETLINK_SOCK_DIAG; where that does not answer, /proc/net/tcp and tcp6; where these are missing, too, nobody.
  explicit PeerUsers(Source first = Source::SockDiag);

  Answer of(int socket, const ConnectionEnds& ends);
  // As of(), for a connection whose one end, `ends.peer`, is this machine's, while the other one is elsewhere. `own` is
  // a connection of this process: where the kernel does not show that one either, it shows none, and CannotTell is the
  // answer.
  Answer of_this_machine(const ConnectionEnds& ends, const std::optional<ConnectionEnds>& own);
  const std::string& why_not() const { return why_not_; }

 private:
  struct Found {
    uid_t uid;
    std::uint64_t inode;
    int state;
  };
  enum class Asked { Answered, Failed, NotNow };

  bool is_own(const ConnectionEnds& ends);
  Asked ask(const ConnectionEnds& ends, std::uint32_t interface, std::optional<Found>& found);
  Asked ask_sock_diag(const ConnectionEnds& ends, std::uint32_t interface, std::optional<Found>& found);
  static Asked read_proc_net(const ConnectionEnds& ends, bool any_address, std::optional<Found>& found);
  static bool is_open(const std::optional<Found>& found);
  bool sees(const ConnectionEnds& own, std::uint32_t interface);
  void use_next_source();

  Source source_;
  Descriptor netlink_;
  std::uint32_t requests_ = 0;
  bool is_proven_ = false;  // the source has found a socket
  std::string why_not_;
  std::set<std::string> own_addresses_;
  std::chrono::steady_clock::time_point own_addresses_until_;
};

// Returns a user as people write it: `alice (uid 1000)`, or `uid 1000` if /etc/passwd does not list it.
std::string user_name(uid_t uid);

}  // namespace ddp::rendezvous
