// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/link/messages.hpp"

#include <cstring>

namespace ddp::rendezvous {

std::string describe(const ExitStatus& status) {
  if (status.signal == 0) return "exited with code " + std::to_string(status.code);
  const char* name = sigabbrev_np(status.signal);
  return name ? std::string("was killed by SIG") + name : "was killed by signal " + std::to_string(status.signal);
}

std::string describe(const WorkerFailure& failure) {
  return "rank " + std::to_string(failure.rank) + " on node " + failure.host + " " + describe(failure.status);
}

}  // namespace ddp::rendezvous
