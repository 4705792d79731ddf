// SPDX-License-Identifier: BSD-3-Clause
// Chooses the address at which the other ranks reach this rank:
//
//   DDP_SOCKET_IFNAME or GLOO_SOCKET_IFNAME    the address of that interface
//   the store is reached from an address       that address, since ranks that reach the store can reach it
//   from loopback, or the store is a file      loopback if all ranks are on this host,
//                                              else the address from which this host reaches another rank's
#pragma once

#include <string>

#include "runtime/base/environment.hpp"

namespace ddp::runtime {

class JobStore;

// Returns a numeric address. Every rank must call this, since each publishes where it is; it may wait for the others.
// Throws rendezvous::Error.
std::string reachable_address(JobStore& store, const Environment& environment);

}  // namespace ddp::runtime
