// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/base/descriptor_message.hpp"

#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <vector>

using namespace ddp::rendezvous;

TEST_CASE("descriptor message: more descriptors than fit are refused, and as many as fit arrive",
          "[rendezvous][unit]") {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  const Descriptor left(ends[0]), right(ends[1]);
  CHECK_FALSE(send_with_descriptors(left.get(), "many", std::vector<int>(100 * kMostDescriptors, left.get())));
  CHECK(errno == E2BIG);
  REQUIRE(send_with_descriptors(left.get(), "most", std::vector<int>(kMostDescriptors, left.get())));
  const auto message = receive_with_descriptors(right.get());
  REQUIRE(message);
  CHECK(message->text == "most");
  CHECK(message->descriptors.size() == kMostDescriptors);
}
