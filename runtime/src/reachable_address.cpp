// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/src/reachable_address.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "rendezvous/error.hpp"
#include "rendezvous/net/numeric_address.hpp"
#include "rendezvous/net/own_address.hpp"
#include "rendezvous/worker_contract.hpp"
#include "runtime/src/interface_address.hpp"
#include "runtime/src/job_store.hpp"

namespace ddp::runtime {
namespace {

namespace contract = rendezvous::contract;

constexpr char kWhereabouts[] = "where";

// Equal for two processes exactly if they share loopback: a container has one of its own, and names may be shared.
std::string this_host() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  char network[64];
  const auto size = readlink("/proc/self/ns/net", network, sizeof network);
  return boot + "/" + std::string(network, static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
}

// Where nothing is known of the others yet: by the default route, else whatever this host has. Empty: loopback only.
std::string likely_address() {
  // Addresses kept for documentation: nobody's, so the default route leads there. Nothing is sent.
  for (const char* far : {"198.51.100.1", "2001:db8::1"}) {
    std::string address = rendezvous::address_towards(far);
    if (!address.empty()) return address;
  }
  const std::vector<std::string> own = rendezvous::own_addresses();
  return own.empty() ? "" : own.front();
}

std::string chosen_interface(const Environment& environment) {
  for (const char* name : {contract::kSocketIfname, contract::kGlooSocketIfname}) {
    if (const auto interface = environment(name); interface && !interface->empty()) return *interface;
  }
  return "";
}

// Of another rank on another host; empty if all are on this one.
std::optional<std::string> address_elsewhere(const std::vector<std::string>& whereabouts, const std::string& here) {
  for (const std::string& where : whereabouts) {
    const std::size_t blank = where.find(' ');
    if (where.substr(0, blank) != here) return where.substr(blank + 1);
  }
  return std::nullopt;
}

}  // namespace

std::string reachable_address(JobStore& store, const Environment& environment) {
  const std::string& own_end = store.local_address();
  const bool is_reachable = !own_end.empty() && !rendezvous::is_loopback(own_end);
  const std::string here = this_host();
  const std::string likely = is_reachable ? own_end : likely_address();
  store.tell(kWhereabouts, here + " " + likely);
  if (const std::string interface = chosen_interface(environment); !interface.empty()) {
    return interface_address(interface, own_end);
  }
  if (is_reachable) return own_end;
  const std::optional<std::string> elsewhere = address_elsewhere(store.hear_all(kWhereabouts), here);
  if (!elsewhere) return own_end.empty() ? "127.0.0.1" : own_end;
  const std::string towards = rendezvous::address_towards(*elsewhere);
  if (!towards.empty()) return towards;
  if (!likely.empty()) return likely;
  throw rendezvous::Error(
      rendezvous::ErrorCode::System,
      "this host has no address but loopback, and there are ranks on other hosts: set "
      "DDP_SOCKET_IFNAME to a network interface that they reach (`ip address` lists what there is)");
}

}  // namespace ddp::runtime
