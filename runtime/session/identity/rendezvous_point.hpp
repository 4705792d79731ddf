// SPDX-License-Identifier: BSD-3-Clause
// The place where the ranks of a job meet: the store that they share.
#pragma once

#include <cstdint>
#include <string>

namespace ddp::rendezvous {
class Store;
}

namespace ddp::runtime {

struct RendezvousPoint {
  enum class Kind {
    Nowhere,    // a world of one
    Address,    // a store listens at host:port
    File,       // the file is the store
    Given,      // a store that the program has opened; host and port say where, if they are known
    PortInFile  // all ranks are on this host: rank 0's store listens on loopback, and the file holds its port
  };
  Kind kind = Kind::Nowhere;
  std::string host;
  std::uint16_t port = 0;
  bool launcher_hosts = false;   // the launcher hosts the store at that address; else rank 0 does
  bool may_be_hosted = false;    // rank 0 hosts the store unless something listens there already
  bool port_is_derived = false;  // derived from Slurm's numbers, not chosen by anyone, so it may be taken
  std::string file;
  const rendezvous::Store* given = nullptr;  // need not exist once the job is joined
  std::string job;  // tells jobs apart that may come to the same address by mistake; empty if none can
};

}  // namespace ddp::runtime
