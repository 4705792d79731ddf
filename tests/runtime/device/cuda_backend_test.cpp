// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/cuda_backend.hpp"

#include <catch2/catch.hpp>

#include "rendezvous/base/error.hpp"

using Catch::Matchers::Contains;
using ddp::runtime::choose_device;

TEST_CASE("cuda device: it has the number of the local rank, unless one is given", "[runtime][unit]") {
  CHECK(choose_device("", 0, 1) == 0);
  CHECK(choose_device("", 3, 4) == 3);
  CHECK(choose_device("cuda:0", 3, 1) == 0);
  CHECK(choose_device("cuda:12", 0, 16) == 12);
}

TEST_CASE("cuda device: one that does not exist is refused with advice", "[runtime][unit]") {
  CHECK_THROWS_WITH(choose_device("", 1, 1),
                    Contains("local rank 1 has no CUDA device of its own: this process may use 1") &&
                        Contains("CUDA_VISIBLE_DEVICES") && Contains("start fewer workers"));
  CHECK_THROWS_WITH(choose_device("cuda:2", 0, 2), Contains("there is no cuda:2: this process may use 2"));
  for (const char* text : {"cuda", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "1", "gpu:0", "cuda:99999999999"}) {
    CAPTURE(text);
    CHECK_THROWS_WITH(choose_device(text, 0, 4), Contains("is no device: give \"cuda:\" and its number"));
  }
}

TEST_CASE("cuda device: a backend that does not exist is refused", "[runtime][unit]") {
  CHECK_THROWS_WITH(ddp::runtime::open_device("hccl", "", 0), Contains("there is no backend \"hccl\" for CUDA memory"));
}
