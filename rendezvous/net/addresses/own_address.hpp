// SPDX-License-Identifier: BSD-3-Clause
// The addresses of this machine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ddp::rendezvous {

struct HostAddresses;

// Returns the numeric addresses of all interfaces that are up, without loopback and link-local IPv6 ones.
std::vector<std::string> own_addresses();
// Returns the addresses at which this machine tells others to find it: `local_address` if it is not empty, else
// own_addresses(), or loopback if there are none.
std::vector<std::string> offered_addresses(const std::string& local_address);

// Returns the address of this machine from which it would reach `numeric`; nothing is sent. Empty if there is no route.
std::string address_towards(const std::string& numeric);

// A host that is called by its name or number. Its addresses are looked up at most once, by the first function that
// needs them, which may block (NameLookup::wait_for).
class NamedHost {
 public:
  using Log = std::function<void(const std::string&)>;  // takes a message if the lookup is slow
  NamedHost(std::string name, Log log = {}) : name_(std::move(name)), log_(std::move(log)) {}
  NamedHost(const char* name) : NamedHost(std::string(name)) {}

  const std::string& name() const { return name_; }
  const HostAddresses& found() const;
  const std::string& why_none() const;  // why the name has no address; empty if it has one

 private:
  std::string name_;
  Log log_;
  mutable std::shared_ptr<const HostAddresses> found_;
};

// Returns the host's first address that can be bound here; empty if none can, or the name cannot be resolved.
std::string own_address_of(const NamedHost& host);
// Returns all of them.
std::vector<std::string> own_addresses_of(const NamedHost& host);

// Returns the addresses to listen on so that other hosts reach this one at `host`, and at `local_address` if it is not
// empty: the number, or those of this machine to which a name leads. Returns "0.0.0.0" and "::" where that cannot be
// known: if `host` leads elsewhere, too, or nowhere; if a name leads to loopback; and if it is this machine's own name
// and leads to only some of its addresses, since other hosts may look it up elsewhere and find the others.
std::vector<std::string> addresses_for(const NamedHost& host, const std::string& local_address);

// Which machine an endpoint's host means: this one, another, or none, since the name cannot be resolved.
enum class HostIs { Own, Other, Unresolved };

// Returns which machine a host means. It is this one for local_address (as the user gave it; may be empty),
// "localhost", this machine's name, full or short, and a name or number of an address that can be bound here.
HostIs whose_host(const NamedHost& host, const std::string& local_address);
// Returns whether it is this one.
bool is_own_host(const NamedHost& host, const std::string& local_address);

// Returns an address at which other hosts reach this host: the address of this host's name, unless that address is
// loopback. Resolving may block.
std::string own_reachable_address();

// Returns a free port that the kernel gives to no other process until this process and its children have ended. A
// socket with SO_REUSEADDR can listen on the port. Throws Error.
std::uint16_t reserve_port();

}  // namespace ddp::rendezvous
