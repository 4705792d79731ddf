// SPDX-License-Identifier: BSD-3-Clause
// Tells all processes that one mpirun or mpiexec has started what the first of them says. Nothing but the starter's own
// key-value store is needed: no address, no port, no MPI library.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace ddp::rendezvous {

enum class KeyValueStore {
  Pmi,   // PMI-1, on the socket that PMI_FD names: MPICH, Intel MPI, srun --mpi=pmi2
  Pmix,  // PMIx: Open MPI
};

// Returns `text` of rank 0 in every process. All processes of the starter must call it, each once: to the starter they
// are done with it afterwards, so none may call MPI_Init later. It runs in a child of this process, which therefore
// must have one thread only, and the socket of PMI_FD is closed at the end. `text` is printable, without blanks, up to
// 200 bytes. Throws Error with the reason if the starter's store cannot be used, or not all processes called within
// `timeout`.
std::string exchange(KeyValueStore store, int rank, const std::string& text, std::chrono::milliseconds timeout);

struct MeetingPoint {
  std::string host;  // numeric
  std::uint16_t port = 0;
  std::string note;  // what rank 0 said besides
};

// Returns where rank 0 can be reached. On rank 0's host the kernel gives the port to no other process until rank 0's
// process has ended; a socket with SO_REUSEADDR can listen on the port. `note` of rank 0 goes to all: up to 100
// printable characters without blanks and commas. See exchange() for what the caller has to know. Throws Error.
MeetingPoint meeting_point(KeyValueStore store, int rank, const std::string& note = "");

}  // namespace ddp::rendezvous
