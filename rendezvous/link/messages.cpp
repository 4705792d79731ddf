// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/link/messages.hpp"

namespace ddp::rendezvous {

std::string describe(const WorkerFailure& failure) {
  return "rank " + std::to_string(failure.rank) + " on node " + failure.host + " " + describe(failure.status);
}

bool is_number_epoch(const std::string& epoch) {
  constexpr std::size_t kMostDigits = 19;  // a number of 64 bits has no more
  const bool has_digits_only = epoch.find_first_not_of("0123456789") == std::string::npos;
  return has_digits_only && !epoch.empty() && epoch.size() <= kMostDigits && epoch.front() != '0';
}

bool is_older_epoch(const std::string& epoch, const std::string& than) {
  return epoch.size() != than.size() ? epoch.size() < than.size() : epoch < than;
}

}  // namespace ddp::rendezvous
