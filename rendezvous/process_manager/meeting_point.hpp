// SPDX-License-Identifier: BSD-3-Clause
// Where the processes of a job meet that an MPI's starter has started, which tells them no address: rank 0 chooses a
// free port and tells the others.
#pragma once

#include <cstdint>
#include <string>

#include "rendezvous/process_manager/exchange.hpp"

namespace ddp::rendezvous {

struct MeetingPoint {
  std::string host;  // numeric
  std::uint16_t port = 0;
  std::string note;  // what rank 0 said besides
};

// Returns where rank 0 can be reached. There the port is this process's until it ends, so that nobody else is given it;
// a socket that allows it (SO_REUSEADDR) can listen on it. `note` of rank 0 goes to all: up to 100 printable characters
// without blanks and commas. See exchange() for what the caller has to know. Throws Error.
MeetingPoint meeting_point(KeyValueStore store, int rank, const std::string& note = "");

}  // namespace ddp::rendezvous
