// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/base/random_id.hpp"

#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>

#include "rendezvous/base/check.hpp"

namespace ddp::rendezvous {

std::string random_id() {
  std::uint64_t bits = 0;
  const ssize_t got = getrandom(&bits, sizeof bits, 0);
  DDP_CHECK(got == sizeof bits, got, errno);
  char text[17];
  snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(bits));
  return text;
}

}  // namespace ddp::rendezvous
