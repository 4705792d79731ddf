// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/base/random_id.hpp"

#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <system_error>

#include "rendezvous/base/error.hpp"

namespace ddp::rendezvous {

std::string random_id() {
  std::uint64_t bits = 0;
  const ssize_t got = getrandom(&bits, sizeof bits, 0);
  if (got != sizeof bits) {
    throw Error(ErrorCode::System, "cannot make a random id: getrandom: " + std::generic_category().message(errno) +
                                       " (does a seccomp filter refuse it? ddprun needs it)");
  }
  char text[17];
  snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(bits));
  return text;
}

}  // namespace ddp::rendezvous
