// SPDX-License-Identifier: BSD-3-Clause
// At which of its addresses this rank can be reached by the others.
//
//   DDP_SOCKET_IFNAME or GLOO_SOCKET_IFNAME    the address of that interface
//   the store is reached from an address       that one: whoever shares the store can reach it
//   from loopback, or it is a file             all ranks are on this host: loopback
//                                              else the address from which this host reaches another rank's
#pragma once

#include <string>

#include "runtime/base/environment.hpp"

namespace ddp::runtime {

class JobStore;

// Numeric. Every rank is to call it, for each tells the others where it is; may wait for them. Throws
// rendezvous::Error.
std::string reachable_address(JobStore& store, const Environment& environment);

}  // namespace ddp::runtime
