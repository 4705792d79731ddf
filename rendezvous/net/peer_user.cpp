// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/net/peer_user.hpp"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "rendezvous/base/text_stream.hpp"
#include "rendezvous/net/addresses/numeric_address.hpp"
#include "rendezvous/net/addresses/own_address.hpp"

namespace ddp::rendezvous {
namespace {

constexpr std::chrono::seconds kOwnAddressesAge{1};  // an interface may get a new address at any time
// With its index the kernel finds sockets that are bound to the loopback interface as well as those bound to none.
constexpr std::uint32_t kLoopbackInterface = 1;
constexpr uid_t kOverflowUser = 65534;  // stands for all users that a user namespace has no number for

using GetName = int (*)(int, sockaddr*, socklen_t*);

std::optional<ConnectionEnds::End> connection_end(int socket, GetName get_name) {
  sockaddr_in6 v6 = {};
  socklen_t size = sizeof v6;
  auto* address = reinterpret_cast<sockaddr*>(&v6);
  if (get_name(socket, address, &size) != 0) return std::nullopt;
  if (address->sa_family == AF_INET6) return ConnectionEnds::End{v6.sin6_addr, ntohs(v6.sin6_port)};
  if (address->sa_family != AF_INET) return std::nullopt;
  sockaddr_in v4 = {};
  std::memcpy(&v4, &v6, sizeof v4);
  ConnectionEnds::End end = {{}, ntohs(v4.sin_port)};
  end.address.s6_addr[10] = end.address.s6_addr[11] = 0xff;
  std::memcpy(&end.address.s6_addr[12], &v4.sin_addr, sizeof v4.sin_addr);
  return end;
}

bool is_v4(const in6_addr& address) { return IN6_IS_ADDR_V4MAPPED(&address); }

bool is_loopback(const in6_addr& address) {
  return is_v4(address) ? address.s6_addr[12] == 127 : IN6_IS_ADDR_LOOPBACK(&address) != 0;
}

ConnectionEnds seen_from_there(const ConnectionEnds& ends) { return {ends.peer, ends.local}; }

// Returns the interface that the socket is bound to, as in a VRF: its other end is bound to the same one.
std::uint32_t interface_of(int socket) {
  int interface = 0;
  socklen_t size = sizeof interface;
  ::getsockopt(socket, SOL_SOCKET, SO_BINDTOIFINDEX, &interface, &size);
  return interface > 0 ? static_cast<std::uint32_t>(interface) : kLoopbackInterface;
}

void put(const ConnectionEnds::End& end, bool v4, __be16& port, __be32 (&words)[4]) {
  port = htons(end.port);
  if (v4) {
    std::memcpy(words, &end.address.s6_addr[12], 4);
  } else {
    std::memcpy(words, &end.address, sizeof end.address);
  }
}

// Writes an end as /proc/net/tcp and tcp6 do: words of 32 bits in the machine's order, and the port.
std::string in_proc_net(const ConnectionEnds::End& end, bool v4) {
  std::string text;
  char part[9];
  for (std::size_t at = v4 ? 12 : 0; at < 16; at += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, &end.address.s6_addr[at], sizeof word);
    std::snprintf(part, sizeof part, "%08X", word);
    text += part;
  }
  std::snprintf(part, sizeof part, ":%04X", end.port);
  return text + part;
}

// Returns whether other users of this machine may look like this process's own user: its number then stands for all
// users that its user namespace does not know.
bool user_is_ambiguous() {
  if (::geteuid() != kOverflowUser) return false;
  FileStream map("/proc/self/uid_map");
  std::uint64_t inside = 1, outside = 1, count = 0;
  map >> inside >> outside >> count;
  return inside != 0 || outside != 0 || count < UINT32_MAX;
}

}  // namespace

std::string to_text(const in6_addr& address) {
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_addr = address;
  return numeric_address(reinterpret_cast<const sockaddr*>(&v6));
}

bool ConnectionEnds::End::operator==(const End& other) const {
  return port == other.port && std::memcmp(&address, &other.address, sizeof address) == 0;
}

std::optional<ConnectionEnds> ends_of(int socket) {
  const auto peer =
      connection_end(socket, [](int fd, sockaddr* to, socklen_t* size) { return ::getpeername(fd, to, size); });
  const auto local =
      connection_end(socket, [](int fd, sockaddr* to, socklen_t* size) { return ::getsockname(fd, to, size); });
  if (!peer || !local) return std::nullopt;
  return ConnectionEnds{*local, *peer};
}

bool is_alive(int socket) {
  std::uint8_t state = 0;  // the first field of tcp_info
  socklen_t size = sizeof state;
  return ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &state, &size) == 0 &&
         (state == TCP_ESTABLISHED || state == TCP_CLOSE_WAIT);
}

PeerUsers::PeerUsers(Source first) : source_(first) {
  if (user_is_ambiguous()) {
    source_ = Source::None;
    why_not_ = "in this user namespace, uid 65534 may be any user";
  }
  if (source_ != Source::SockDiag) return;
  netlink_ = Descriptor(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG));
  if (!netlink_) use_next_source();
}

PeerUsers::Answer PeerUsers::of(int socket, const ConnectionEnds& ends) {
  if (!is_own(ends)) return Elsewhere{};
  while (source_ != Source::None) {
    std::optional<Found> found;
    const Asked asked = ask(seen_from_there(ends), interface_of(socket), found);
    if (asked == Asked::NotNow) return Gone{};
    if (asked == Asked::Answered) {
      if (is_open(found) && is_alive(socket)) {
        is_proven_ = true;
        return Known{found->uid, found->inode};
      }
      // A source that sees no sockets at all is no reason to refuse one. This end is there for certain while it is
      // alive, also after the question.
      if (is_proven_ || !is_alive(socket) || sees(ends, interface_of(socket)) || !is_alive(socket)) return Gone{};
    }
    use_next_source();
  }
  return CannotTell{};
}

PeerUsers::Answer PeerUsers::of_this_machine(const ConnectionEnds& ends, const std::optional<ConnectionEnds>& own) {
  const ConnectionEnds here = seen_from_there(ends);
  std::optional<Found> found;
  while (source_ != Source::None) {
    const Asked asked = ask(here, kLoopbackInterface, found);
    if (asked == Asked::Answered && is_open(found)) return Known{found->uid, found->inode};
    if (asked == Asked::Answered && (is_proven_ || (own && sees(*own, kLoopbackInterface)))) break;
    if (asked == Asked::NotNow || !own) return CannotTell{};
    use_next_source();
  }
  if (source_ == Source::None) return CannotTell{};
  if (found) return Gone{};  // its process has closed it
  // The address that it goes to may be translated on the way, as a Service's address of Kubernetes is.
  if (read_proc_net(here, /*any_address=*/true, found) != Asked::Answered) return CannotTell{};
  return is_open(found) ? Answer(Known{found->uid, found->inode}) : Answer(Gone{});
}

// Not of a connection that only begins, or waits for a client.
bool PeerUsers::is_open(const std::optional<Found>& found) {
  return found && found->inode != 0 &&
         (found->state == TCP_ESTABLISHED || found->state == TCP_FIN_WAIT1 || found->state == TCP_FIN_WAIT2);
}

bool PeerUsers::is_own(const ConnectionEnds& ends) {
  const in6_addr& peer = ends.peer.address;
  if (is_loopback(peer) || is_loopback(ends.local.address)) return true;
  if (std::memcmp(&peer, &ends.local.address, sizeof peer) == 0) return true;
  if (const auto now = std::chrono::steady_clock::now(); now >= own_addresses_until_) {
    const auto all = own_addresses();
    own_addresses_ = {all.begin(), all.end()};
    own_addresses_until_ = now + kOwnAddressesAge;
  }
  return own_addresses_.contains(to_text(peer));
}

PeerUsers::Asked PeerUsers::ask(const ConnectionEnds& ends, std::uint32_t interface, std::optional<Found>& found) {
  return source_ == Source::SockDiag ? ask_sock_diag(ends, interface, found) : read_proc_net(ends, false, found);
}

// Asks for the one socket with these ends. The kernel answers before send() returns, so there is nothing to wait for.
PeerUsers::Asked PeerUsers::ask_sock_diag(const ConnectionEnds& ends, std::uint32_t interface,
                                          std::optional<Found>& found) {
  struct {
    nlmsghdr header;
    inet_diag_req_v2 what;
  } request = {};
  const bool v4 = is_v4(ends.local.address) && is_v4(ends.peer.address);
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.header.nlmsg_seq = ++requests_;
  request.what.sdiag_family = v4 ? AF_INET : AF_INET6;
  request.what.sdiag_protocol = IPPROTO_TCP;
  request.what.idiag_states = ~0U;
  inet_diag_sockid& id = request.what.id;
  put(ends.local, v4, id.idiag_sport, id.idiag_src);
  put(ends.peer, v4, id.idiag_dport, id.idiag_dst);
  id.idiag_if = interface;
  id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  if (::send(netlink_.get(), &request, sizeof request, 0) != sizeof request) return Asked::Failed;

  while (true) {
    alignas(nlmsghdr) char buffer[1024];
    const auto size = ::recv(netlink_.get(), buffer, sizeof buffer, 0);
    if (size < static_cast<ssize_t>(sizeof(nlmsghdr))) return Asked::Failed;
    nlmsghdr header;
    std::memcpy(&header, buffer, sizeof header);
    if (header.nlmsg_seq != requests_) continue;  // the answer to an earlier request
    const auto has = [size](std::size_t bytes) { return static_cast<std::size_t>(size) >= NLMSG_HDRLEN + bytes; };
    if (header.nlmsg_type == NLMSG_ERROR && has(sizeof(nlmsgerr))) {
      nlmsgerr error;
      std::memcpy(&error, buffer + NLMSG_HDRLEN, sizeof error);
      return error.error == -ENOENT ? Asked::Answered : Asked::Failed;
    }
    if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || !has(sizeof(inet_diag_msg))) return Asked::Failed;
    inet_diag_msg message;
    std::memcpy(&message, buffer + NLMSG_HDRLEN, sizeof message);
    // Where no connection has these ends, the kernel may answer with a socket that listens at the port.
    if (message.id.idiag_sport == id.idiag_sport && message.id.idiag_dport == id.idiag_dport) {
      found = Found{message.idiag_uid, message.idiag_inode, message.idiag_state};
    }
    return Asked::Answered;
  }
}

// Looks for a connection with these ends; with `any_address`, the other end's port is enough.
PeerUsers::Asked PeerUsers::read_proc_net(const ConnectionEnds& ends, bool any_address, std::optional<Found>& found) {
  // A socket of IPv6 may be connected to a v4-mapped address.
  const bool may_be_v4 = is_v4(ends.local.address) && is_v4(ends.peer.address);
  bool is_there = false;
  for (const bool v4 : {true, false}) {
    if (v4 && !may_be_v4) continue;
    errno = 0;
    FileStream table(v4 ? "/proc/net/tcp" : "/proc/net/tcp6");
    if (!table) {
      if (errno == EMFILE || errno == ENFILE) return Asked::NotNow;
      continue;
    }
    is_there = true;
    const std::string local = ": " + in_proc_net(ends.local, v4) + " ", peer = in_proc_net(ends.peer, v4);
    const std::string wanted = any_address ? peer.substr(peer.find(':')) : peer;
    for (std::string line; std::getline(table, line);) {
      const std::size_t at = line.find(local);
      if (at == std::string::npos) continue;
      TextStream fields(line.substr(at + local.size()));
      std::string other_end, state, queues, timer, retransmits, timeout;
      Found one = {};
      fields >> other_end >> state >> queues >> timer >> retransmits >> one.uid >> timeout >> one.inode;
      if (!fields || !other_end.ends_with(wanted)) continue;
      one.state = static_cast<int>(std::strtol(state.c_str(), nullptr, 16));
      found = one;
      return Asked::Answered;
    }
  }
  return is_there ? Asked::Answered : Asked::Failed;
}

bool PeerUsers::sees(const ConnectionEnds& own, std::uint32_t interface) {
  std::optional<Found> found;
  is_proven_ = ask(own, interface, found) == Asked::Answered && found && found->inode != 0;
  return is_proven_;
}

void PeerUsers::use_next_source() {
  is_proven_ = false;
  source_ = source_ == Source::SockDiag ? Source::ProcNet : Source::None;
  netlink_.close();
  if (source_ == Source::None) why_not_ = "neither NETLINK_SOCK_DIAG nor /proc/net/tcp shows sockets here";
}

// Not getpwuid(), which may ask a directory service and wait for it.
std::string user_name(uid_t uid) {
  const std::string number = std::to_string(uid);
  FileStream users("/etc/passwd");
  for (std::string line; std::getline(users, line);) {
    TextStream fields(line);
    std::string name, password, id;
    std::getline(fields, name, ':');
    std::getline(fields, password, ':');
    std::getline(fields, id, ':');
    if (id == number) return name + " (uid " + number + ")";
  }
  return "uid " + number;
}

}  // namespace ddp::rendezvous
