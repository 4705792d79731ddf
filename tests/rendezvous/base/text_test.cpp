// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/base/text.hpp"

#include <catch2/catch.hpp>

using ddp::rendezvous::describe_bytes;

TEST_CASE("text: sizes are shown in decimal units", "[rendezvous][unit]") {
  CHECK(describe_bytes(0) == "0 B");
  CHECK(describe_bytes(999) == "999 B");
  CHECK(describe_bytes(1000) == "1.0 kB");
  CHECK(describe_bytes(33'000'000) == "33.0 MB");
  CHECK(describe_bytes(999'960'000) == "1.0 GB");
  CHECK(describe_bytes(5'000'000'000'000'000) == "5000.0 TB");
}
