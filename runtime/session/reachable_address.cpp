// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/session/reachable_address.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text_stream.hpp"
#include "rendezvous/machine/network_space.hpp"
#include "rendezvous/net/addresses/numeric_address.hpp"
#include "rendezvous/net/addresses/own_address.hpp"
#include "rendezvous/worker_contract.hpp"
#include "runtime/session/interface_address.hpp"
#include "runtime/session/job_store.hpp"

namespace ddp::runtime {
namespace {

namespace contract = rendezvous::contract;

constexpr char kWhereabouts[] = "where";
constexpr std::size_t kMostAddresses = 16;

// Returns an id that is equal for two processes exactly if they share a loopback interface.
std::string this_host() {
  const auto [boot, network] = rendezvous::own_network_space();
  return boot + "/net:[" + network + "]";
}

// Returns addresses at which others may reach this host, the likeliest first: those of the default routes, then the
// rest.
std::vector<std::string> likely_addresses() {
  std::vector<std::string> likely;
  const auto add = [&](const std::string& address) {
    if (!address.empty() && std::find(likely.begin(), likely.end(), address) == likely.end()) likely.push_back(address);
  };
  // These addresses are reserved for documentation, so the default route leads to them. Nothing is sent.
  for (const char* far : {"198.51.100.1", "2001:db8::1"}) add(rendezvous::address_towards(far));
  for (const std::string& own : rendezvous::own_addresses()) add(own);
  if (likely.size() > kMostAddresses) likely.resize(kMostAddresses);
  return likely;
}

std::string chosen_interface(const Environment& environment) {
  for (const char* name : {contract::kSocketIfname, contract::kGlooSocketIfname}) {
    if (const auto interface = environment(name); interface && !interface->empty()) return *interface;
  }
  return "";
}

// Encodes what a rank publishes: its host, then its addresses.
std::string encode_location(const std::string& host, const std::vector<std::string>& addresses) {
  std::string line = host;
  for (const std::string& address : addresses) line += " " + address;
  return line;
}

// Returns the addresses of the first rank on another host, or nothing if all ranks are on this one.
std::optional<std::vector<std::string>> addresses_elsewhere(const std::vector<std::string>& lines,
                                                            const std::string& here) {
  for (const std::string& line : lines) {
    rendezvous::TextStream words(line);
    std::string host;
    words >> host;
    if (host != here) return std::vector<std::string>(std::istream_iterator<std::string>(words), {});
  }
  return std::nullopt;
}

}  // namespace

std::string reachable_address(JobStore& store, const Environment& environment) {
  const std::string& own_end = store.local_address();
  const bool is_reachable = !own_end.empty() && !rendezvous::is_loopback(own_end);
  const std::string here = this_host();
  const std::vector<std::string> likely = is_reachable ? std::vector<std::string>{own_end} : likely_addresses();
  // Every rank publishes where it is, even one that needs no answer.
  store.publish(kWhereabouts, encode_location(here, likely));
  if (const std::string interface = chosen_interface(environment); !interface.empty()) {
    return interface_address(interface, own_end);
  }
  if (is_reachable) return own_end;
  // Find out from where this host reaches a rank on another one.
  const auto elsewhere = addresses_elsewhere(store.gather(kWhereabouts), here);
  if (!elsewhere) return own_end.empty() ? "127.0.0.1" : own_end;
  for (const std::string& theirs : *elsewhere) {
    const std::string towards = rendezvous::address_towards(theirs);
    if (!towards.empty()) return towards;
  }
  if (!likely.empty()) return likely.front();
  throw rendezvous::Error(
      rendezvous::ErrorCode::System,
      "this host has only loopback addresses, but there are ranks on other hosts: set "
      "DDP_SOCKET_IFNAME to a network interface that they reach (`ip address` lists what there is)");
}

}  // namespace ddp::runtime
