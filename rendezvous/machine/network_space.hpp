// SPDX-License-Identifier: BSD-3-Clause
// Which machine this is, since which boot, and which of its networks: two processes share a loopback interface exactly
// if both are equal. A container often has a network of its own, and host names may be shared.
#pragma once

#include <string>

namespace ddp::rendezvous {

struct NetworkSpace {
  std::string boot;     // id of the machine since its start; empty: unknown
  std::string network;  // number of the network namespace; empty: unknown
};

NetworkSpace own_network_space();

}  // namespace ddp::rendezvous
