// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/link/messages.hpp"

#include "rendezvous/base/text.hpp"

namespace ddp::rendezvous {

std::string describe(const ExitStatus& status) {
  if (status.signal == 0) return "exited with code " + std::to_string(status.code);
  return "was killed by " + signal_name(status.signal);
}

std::string describe(const WorkerFailure& failure) {
  return "rank " + std::to_string(failure.rank) + " on node " + failure.host + " " + describe(failure.status);
}

}  // namespace ddp::rendezvous
