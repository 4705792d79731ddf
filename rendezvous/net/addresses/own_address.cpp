// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/net/addresses/own_address.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <strings.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/base/text_stream.hpp"
#include "rendezvous/net/addresses/numeric_address.hpp"

namespace ddp::rendezvous {
namespace {

bool is_same_name(const std::string& a, const std::string& b) { return ::strcasecmp(a.c_str(), b.c_str()) == 0; }

bool is_own_name(const std::string& host) {
  const std::string full = host_name();
  return is_same_name(host, "localhost") ||
         (!full.empty() && (is_same_name(host, full) || is_same_name(host, full.substr(0, full.find('.')))));
}

// Returns whether a name may be this machine's, with a domain or without. Such names are often looked up in files of
// each machine's own.
bool may_be_own_name(const std::string& host) {
  const std::string full = host_name();
  return !full.empty() && is_same_name(host.substr(0, host.find('.')), full.substr(0, full.find('.')));
}

// Some failover setups allow any address to be bound; then a successful bind proves nothing.
bool is_any_address_bindable(int family) {
  FileStream file(family == AF_INET ? "/proc/sys/net/ipv4/ip_nonlocal_bind" : "/proc/sys/net/ipv6/ip_nonlocal_bind");
  return file.get() == '1';
}

bool can_be_bound(const addrinfo& address) {
  const Descriptor socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return socket &&
         ::bind(socket.get(), address.ai_addr, address.ai_addrlen) == 0;  // port 0: only the address can be wrong
}

bool is_own(const addrinfo& address) {
  if (!can_be_bound(address)) return false;
  if (!is_any_address_bindable(address.ai_family)) return true;
  const std::string text = numeric_address(address.ai_addr);
  const std::vector<std::string> own = own_addresses();
  return is_loopback(text) || std::find(own.begin(), own.end(), text) != own.end();
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// Returns the addresses of a name or a number; nothing if there are none.
Addresses resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) found = nullptr;
  return {found, &::freeaddrinfo};
}

// Returns the first of these addresses that can be bound here; empty if none can.
std::string own_among(const Addresses& found) {
  for (const addrinfo* entry = found.get(); entry != nullptr; entry = entry->ai_next) {
    if (is_own(*entry)) return numeric_address(entry->ai_addr);
  }
  return "";
}

}  // namespace

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return addresses;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> interfaces(raw, &::freeifaddrs);
  for (const ifaddrs* entry = raw; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    if (entry->ifa_addr->sa_family == AF_INET6 &&
        IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr)) {
      continue;
    }
    // Loopback is left out by address, not by interface: routed clusters put a node's only address on lo.
    const std::string address = numeric_address(entry->ifa_addr);
    if (address.empty() || is_loopback(address)) continue;
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end()) addresses.push_back(address);
  }
  return addresses;
}

std::vector<std::string> offered_addresses(const std::string& local_address) {
  if (!local_address.empty()) return {local_address};
  std::vector<std::string> own = own_addresses();
  if (own.empty()) own = {"127.0.0.1"};
  return own;
}

std::string address_towards(const std::string& numeric) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(numeric.c_str(), "9", &hints, &found) != 0) return "";  // any port will do
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  const Descriptor socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket || ::connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0) return "";
  return local_address(socket.get());
}

std::string own_address_of(const std::string& host) { return own_among(resolve(host)); }

std::vector<std::string> addresses_for(const std::string& host, const std::string& local_address) {
  const std::vector<std::string> all = {"0.0.0.0", "::"};
  std::vector<std::string> meant;
  const auto add = [&meant](const std::string& address) {
    if (std::find(meant.begin(), meant.end(), address) == meant.end()) meant.push_back(address);
  };
  // Collect the addresses of both; each must be this machine's.
  for (const std::string& each : {host, local_address}) {
    if (each.empty()) continue;
    const Addresses found = resolve(each);
    if (!found) return all;
    for (const addrinfo* entry = found.get(); entry != nullptr; entry = entry->ai_next) {
      if (!is_own(*entry)) return all;
      add(numeric_address(entry->ai_addr));
    }
  }
  // Loopback is meant only by its number: "localhost" is what this machine calls itself, while others have an address.
  if (is_loopback(host)) {
    add("127.0.0.1");
    add("::1");
  } else if (std::any_of(meant.begin(), meant.end(), is_loopback)) {
    return all;
  }
  if (!may_be_own_name(host)) return meant;
  const std::vector<std::string> own = own_addresses();
  const bool is_complete = std::all_of(own.begin(), own.end(), [&meant](const std::string& address) {
    return std::find(meant.begin(), meant.end(), address) != meant.end();
  });
  return is_complete ? meant : all;
}

HostIs whose_host(const std::string& host, const std::string& local_address) {
  if (host.empty()) return HostIs::Unresolved;
  if (host == local_address || is_own_name(host)) return HostIs::Own;
  const Addresses found = resolve(host);
  if (!found) return HostIs::Unresolved;
  return own_among(found).empty() ? HostIs::Other : HostIs::Own;
}

bool is_own_host(const std::string& host, const std::string& local_address) {
  return whose_host(host, local_address) == HostIs::Own;
}

}  // namespace ddp::rendezvous
