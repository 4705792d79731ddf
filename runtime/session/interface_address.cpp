// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/session/interface_address.hpp"

#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>

#include <memory>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text_stream.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;
using rendezvous::system_error;

// Returns "" if none of the interfaces has an address of the family.
std::string first_address(const ifaddrs* list, const std::string& interfaces, int family) {
  const socklen_t length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  rendezvous::TextStream names(interfaces);
  for (std::string name; std::getline(names, name, ',');) {
    for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != family || name != i->ifa_name) continue;
      char text[NI_MAXHOST];
      if (getnameinfo(i->ifa_addr, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0) return text;
    }
  }
  return "";
}

}  // namespace

std::string interface_address(const std::string& interface, const std::string& like) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    system_error("the network interfaces cannot be listed");
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  const bool only_v6 = like.find(':') != std::string::npos;
  const bool only_v4 = !like.empty() && !only_v6;
  std::string address = only_v6 ? "" : first_address(list, interface, AF_INET);
  if (address.empty() && !only_v4) address = first_address(list, interface, AF_INET6);
  if (!address.empty()) return address;
  throw Error(ErrorCode::InvalidArgument,
              "no network interface " + interface +
                  (only_v6   ? " with an IPv6"
                   : only_v4 ? " with an IPv4"
                             : " with an") +
                  " address on this host (DDP_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names it; "
                  "`ip address` lists what there is)");
}

}  // namespace ddp::runtime
