// SPDX-License-Identifier: BSD-3-Clause
// The kit's C functions: they read the size of their options, and report errors as libddp's functions do.
#include "ddp/c/training.h"

#include <catch2/catch.hpp>
#include <string>

#include "ddp/session.hpp"

using Catch::Matchers::Contains;

TEST_CASE("training kit: every C function reads the size of its options", "[training][unit]") {
  float value = 1, grad = 1, mean = 0, square = 0, momentum = 0;
  const ddp_adamw_arrays adamw_arrays = {&value, &grad, &mean, &square, nullptr, 1, DDP_FLOAT32};
  const ddp_sgd_arrays sgd_arrays = {&value, &grad, &momentum, nullptr, 1, DDP_FLOAT32};
  ddp_adamw_options adamw = DDP_ADAMW_OPTIONS_INIT;
  ddp_sgd_options sgd = DDP_SGD_OPTIONS_INIT;
  ddp_sync_batch_norm_options norm_options = DDP_SYNC_BATCH_NORM_OPTIONS_INIT;
  const ddp::Session session = ddp::init_process_group();
  ddp_sync_batch_norm* norm = nullptr;
  CHECK(ddp_adamw_step(&adamw, &adamw_arrays) == DDP_OK);
  CHECK(ddp_sgd_step(&sgd, &sgd_arrays) == DDP_OK);
  REQUIRE(ddp_sync_batch_norm_create(session.world().c(), 1, nullptr, &norm_options, &norm) == DDP_OK);
  ddp_sync_batch_norm_destroy(norm);
  adamw.size = sgd.size = norm_options.size = 1;
  CHECK(ddp_adamw_step(&adamw, &adamw_arrays) == DDP_INVALID_ARGUMENT);
  CHECK_THAT(ddp_error_last(), Contains("ddp_adamw_options: its size is 1 "));
  CHECK(ddp_sgd_step(&sgd, &sgd_arrays) == DDP_INVALID_ARGUMENT);
  CHECK_THAT(ddp_error_last(), Contains("ddp_sgd_options: its size is 1 "));
  CHECK(ddp_sync_batch_norm_create(session.world().c(), 1, nullptr, &norm_options, &norm) == DDP_INVALID_ARGUMENT);
  CHECK_THAT(ddp_error_last(), Contains("ddp_sync_batch_norm_options: its size is 1 "));
}

TEST_CASE("training kit: a group that is null or has ended is refused with a reason", "[training][unit]") {
  ddp_sync_batch_norm* norm = nullptr;
  CHECK(ddp_sync_batch_norm_create(nullptr, 1, nullptr, nullptr, &norm) == DDP_INVALID_ARGUMENT);
  CHECK(ddp_error_last() == std::string("the group is null"));
  ddp_group* ended = nullptr;
  {
    const ddp::Session session = ddp::init_process_group();
    ended = session.world().c();
  }
  CHECK(ddp_sync_batch_norm_create(ended, 1, nullptr, nullptr, &norm) == DDP_INVALID_ARGUMENT);
  CHECK_THAT(ddp_error_last(), Contains("there is no such group in this process"));
}
