// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/machine/network_space.hpp"

#include <sys/stat.h>

#include "rendezvous/base/text_stream.hpp"

namespace ddp::rendezvous {

NetworkSpace own_network_space() {
  NetworkSpace own;
  FileStream("/proc/sys/kernel/random/boot_id") >> own.boot;
  struct stat network = {};
  if (stat("/proc/self/ns/net", &network) == 0) own.network = std::to_string(network.st_ino);
  return own;
}

}  // namespace ddp::rendezvous
