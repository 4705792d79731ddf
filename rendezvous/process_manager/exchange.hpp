// SPDX-License-Identifier: BSD-3-Clause
// Tells all processes that one mpirun or mpiexec has started what the first of them says. Nothing but the starter's own
// key-value store is needed: no address, no port, no MPI library.
#pragma once

#include <chrono>
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

}  // namespace ddp::rendezvous
