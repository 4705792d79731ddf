// SPDX-License-Identifier: BSD-3-Clause
// Where the ranks of a job meet: the store that they share.
#pragma once

#include <cstdint>
#include <string>

namespace ddp::runtime {

struct RendezvousPoint {
  enum class Kind {
    Nowhere,    // a world of one
    Address,    // a store listens at host:port
    File,       // the file is the store
    PortInFile  // all are on this host: rank 0's store listens on loopback, and the file says at which port
  };
  Kind kind = Kind::Nowhere;
  std::string host;
  std::uint16_t port = 0;
  bool launcher_hosts = false;   // the store at that address; else rank 0 does
  bool port_is_derived = false;  // nobody chose it, so it may be taken
  std::string file;
  std::string job;  // told apart by it: jobs that may come to the same address by mistake. Empty: none will
};

}  // namespace ddp::runtime
