// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/net/addresses/own_address.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <strings.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/base/text_stream.hpp"
#include "rendezvous/net/addresses/name_lookup.hpp"
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

bool can_be_bound(const FoundAddress& address) {
  const Descriptor socket(::socket(address.raw()->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return socket && ::bind(socket.get(), address.raw(), address.size) == 0;  // port 0: only the address can be wrong
}

bool is_own(const FoundAddress& address) {
  if (!can_be_bound(address)) return false;
  if (!is_any_address_bindable(address.raw()->sa_family)) return true;
  const std::string text = numeric_address(address.raw());
  const std::vector<std::string> own = own_addresses();
  return is_loopback(text) || std::find(own.begin(), own.end(), text) != own.end();
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

const HostAddresses& NamedHost::found() const {
  if (!found_) {
    found_ = std::make_shared<HostAddresses>(NameLookup::wait_for(name_, [this] {
      if (log_) log_("looking up the name " + name_ + " takes long: no name server has answered yet");
    }));
  }
  return *found_;
}

const std::string& NamedHost::why_none() const { return found().error; }

std::vector<std::string> own_addresses_of(const NamedHost& host) {
  std::vector<std::string> own;
  for (const FoundAddress& address : host.found().addresses) {
    if (is_own(address)) own.push_back(numeric_address(address.raw()));
  }
  return own;
}

std::string own_address_of(const NamedHost& host) {
  const std::vector<std::string> own = own_addresses_of(host);
  return own.empty() ? "" : own.front();
}

std::vector<std::string> addresses_for(const NamedHost& host, const std::string& local_address) {
  const std::vector<std::string> all = {"0.0.0.0", "::"};
  std::vector<std::string> meant;
  const auto add = [&meant](const std::string& address) {
    if (std::find(meant.begin(), meant.end(), address) == meant.end()) meant.push_back(address);
  };
  // Collect the addresses of both; each must be this machine's.
  const NamedHost local(local_address);
  for (const NamedHost* each : {&host, &local}) {
    if (each->name().empty()) continue;
    if (each->found().addresses.empty()) return all;
    for (const FoundAddress& address : each->found().addresses) {
      if (!is_own(address)) return all;
      add(numeric_address(address.raw()));
    }
  }
  // Loopback is meant only by its number: "localhost" is what this machine calls itself, while others have an address.
  if (is_loopback(host.name())) {
    add("127.0.0.1");
    add("::1");
  } else if (std::any_of(meant.begin(), meant.end(), is_loopback)) {
    return all;
  }
  if (!may_be_own_name(host.name())) return meant;
  const std::vector<std::string> own = own_addresses();
  const bool is_complete = std::all_of(own.begin(), own.end(), [&meant](const std::string& address) {
    return std::find(meant.begin(), meant.end(), address) != meant.end();
  });
  return is_complete ? meant : all;
}

HostIs whose_host(const NamedHost& host, const std::string& local_address) {
  const std::string& name = host.name();
  if (name.empty()) return HostIs::Unresolved;
  if (name == local_address || is_own_name(name)) return HostIs::Own;
  if (host.found().addresses.empty()) return HostIs::Unresolved;
  return own_address_of(host).empty() ? HostIs::Other : HostIs::Own;
}

bool is_own_host(const NamedHost& host, const std::string& local_address) {
  return whose_host(host, local_address) == HostIs::Own;
}

std::string own_reachable_address() {
  const std::string named = own_address_of(host_name());
  if (!named.empty() && !named.starts_with("127.") && named != "::1") return named;
  const std::vector<std::string> all = own_addresses();
  return all.empty() ? "127.0.0.1" : all.front();
}

std::uint16_t reserve_port() {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  socklen_t size = sizeof any;
  auto* const address = reinterpret_cast<sockaddr*>(&any);
  if (!socket || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      ::bind(socket.get(), address, size) != 0 || ::getsockname(socket.get(), address, &size) != 0) {
    system_error("cannot reserve a port for the other ranks");
  }
  socket.release();
  return ntohs(any.sin_port);
}

}  // namespace ddp::rendezvous
