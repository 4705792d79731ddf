// SPDX-License-Identifier: BSD-3-Clause
// DistributedDataParallel with real processes. Each rank's own checks are in ddp_worker.cpp and the
// scenarios next to it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include "tests/runtime/job/run_job.hpp"

using Catch::Matchers::Contains;
using ddp::test::Others;
using ddp::test::run;
using ddp::test::run_with_a_death;

TEST_CASE("DDP: two ranks follow a table worked out by hand", "[training][integration]") {
  const std::string scenario = GENERATE("table", "table, library memory");
  run(2, scenario);
}

TEST_CASE("DDP: gradients of many buckets are averages whatever order each rank marks them in",
          "[training][integration]") {
  const int size = GENERATE(1, 2, 4);
  run(size, "buckets");
}

TEST_CASE("DDP: DDP_DEBUG=detail does not change results", "[training][integration]") {
  for (const char* scenario : {"buckets", "uneven, all ranks", "two stages"})
    run(2, scenario, {{"DDP_DEBUG", "detail"}});
}

TEST_CASE("DDP: gradients accumulate under no_sync and are averaged after it", "[training][integration]") {
  const int size = GENERATE(1, 2, 4);
  run(size, "no_sync");
}

TEST_CASE("DDP: gradients are those of one process with the whole batch, bit for bit where nothing is rounded",
          "[training][integration]") {
  const int size = GENERATE(1, 2, 4, 8);
  run(size, "whole batch, exact");
  run(size, "whole batch, accumulated");
}

TEST_CASE("DDP: gradients are those of one process with the whole batch to 1e-6 where sums are rounded",
          "[training][integration]") {
  const int size = GENERATE(1, 2, 3, 4, 8);
  run(size, "whole batch, rounded");
}

TEST_CASE("DDP: memory that has moved is used in its new place, as soon as the model knows it",
          "[training][integration]") {
  const int size = GENERATE(1, 2, 3);
  for (const std::string& output : run(size, "moved")) {
    CHECK_THAT(output, Contains("parameter 0 (p0) was given without a gradient"));
    CHECK_THAT(output, Contains("there is no buffer 0: the model has 0"));
    CHECK_THAT(output, Contains("null failed"));
  }
}

TEST_CASE("DDP: 16-bit gradients are averaged in 32 bits and rounded once", "[training][integration]") {
  const int size = GENERATE(1, 2, 3);
  run(size, "half precision");
}

TEST_CASE("DDP: gradients that are marked all at once are averages, in every step", "[training][integration]") {
  run(GENERATE(1, 2), "all at once");
}

TEST_CASE("DDP: after the first step buckets are in the order in which gradients came on rank 0",
          "[training][integration]") {
  const int size = GENERATE(1, 2, 4);
  run(size, "rebuild");
}

TEST_CASE("DDP: gradients that live in buckets move once and keep their values", "[training][integration]") {
  const int size = GENERATE(1, 2, 4);
  run(size, "bucket view");
}

TEST_CASE("DDP: where one rank's gradients may not move, or any may be unused, nothing is rebuilt",
          "[training][integration]") {
  const std::string scenario = GENERATE("buckets that stay", "buckets that stay, unused");
  run(2, scenario);
}

TEST_CASE("DDP: an unused parameter adds what its gradient holds, and keeps its gradient if no rank used it",
          "[training][integration]") {
  const int size = GENERATE(1, 2, 4);
  const std::string scenario = GENERATE("unused", "unused, in buckets");
  run(size, scenario);
}

TEST_CASE("DDP: gradients that add up over several averages do so for parameters that some ranks do not use",
          "[training][integration]") {
  run(GENERATE(1, 2, 4), "unused, accumulated");
}

TEST_CASE("DDP: a static graph is defined by its first step, and a different step is an error that names the parameter",
          "[training][integration]") {
  const int size = GENERATE(1, 2, 4);
  const std::string scenario = GENERATE("static graph", "static graph, bucket view");
  for (const std::string& output : run(size, scenario)) {
    const std::string why =
        " failed: 1 DistributedDataParallel: parameter 0 (p0) was marked ready once in this step, but 2 times in the "
        "first";
    CHECK_THAT(output, Contains("unlike the first" + why));
    CHECK_THAT(output, Contains("again" + why));
  }
}

TEST_CASE("DDP: rank 0's buffers are broadcast at the beginning and before each forward that needs it",
          "[training][integration]") {
  const int size = GENERATE(1, 2, 3);
  run(size, "buffers");
}

TEST_CASE("DDP: ranks with different amounts of input train together", "[training][integration]") {
  const int size = GENERATE(1, 2, 3, 4);
  const std::string scenario = GENERATE("uneven, all ranks", "uneven, active ranks", "uneven accumulation");
  run(size, scenario);
}

TEST_CASE("DDP: throw_on_early_termination stops all ranks and names the first rank without input",
          "[training][integration]") {
  for (const std::string& output : run(3, "early termination")) {
    CHECK_THAT(output, Contains("join failed: 5 DistributedDataParallel: rank 1 has no more input while 2 of 3 ranks "
                                "have"));
  }
}

TEST_CASE("DDP: misuse of join is an error, not a hang", "[training][integration]") {
  for (const std::string& output : run(2, "join mistakes")) {
    CHECK_THAT(output, Contains("forgotten failed: 1 DistributedDataParallel: a step began without before_forward()"));
  }
}

TEST_CASE("DDP: a hook of several stages is called for all buckets stage after stage", "[training][integration]") {
  const int size = GENERATE(1, 2, 3);
  run(size, "two stages");
}

TEST_CASE("DDP: a hook's exception is thrown on its rank, and stops the others with its message",
          "[training][integration]") {
  const std::string where = GENERATE("start", "advance");
  const std::vector<std::string> outputs = run(3, "hook fails in " + where);
  const std::string why = "the communication hook failed: bucket 0: no space for error feedback";
  CHECK_THAT(outputs[1], Contains("the user's own: no space for error feedback"));
  CHECK_THAT(outputs[1], Contains("again failed: 6 bucket 0: no space for error feedback"));
  for (const std::size_t rank : {0U, 2U}) {
    CHECK_THAT(outputs[rank], Contains("step failed: 3 world: "));  // in whatever collective they are at the time
    CHECK_THAT(outputs[rank], Contains("rank 1 gave up: world: DistributedDataParallel: " + why));
  }
}

TEST_CASE("DDP: a hook is registered once and before the first backward", "[training][integration]") {
  for (const std::string& output : run(2, "hook mistakes")) {
    CHECK_THAT(output, Contains("twice failed: 1 DistributedDataParallel: there is a communication hook already"));
    CHECK_THAT(output, Contains("late failed: 1 DistributedDataParallel: a communication hook is registered before the "
                                "first backward"));
  }
}

TEST_CASE("DDP: a parameter marked never or twice is an error that names it", "[training][integration]") {
  const int size = GENERATE(1, 2);
  for (const std::string& output : run(size, "marking mistakes")) {
    CHECK_THAT(output,
               Contains("never failed: 1 DistributedDataParallel: parameter 0 (first), parameter 2 (third) were "
                        "never marked ready"));
    CHECK_THAT(output,
               Contains("again failed: 1 DistributedDataParallel: parameter 0 (first), parameter 2 (third) were "
                        "never marked ready"));
    CHECK_THAT(output, Contains("twice failed: 1 DistributedDataParallel: parameter 2 (third) was marked ready twice"));
  }
}

TEST_CASE("DDP: ranks with different models all report the difference", "[training][integration]") {
  const std::vector<std::string> outputs = run(3, "model mismatch");
  for (const std::string& output : outputs) {
    CHECK_THAT(output, Contains("sizes failed: 5 parameter 1 (fc2) has 10 float32 elements on rank 0 but 12 float32 "
                                "elements on rank 1: every rank must build the same model"));
    CHECK_THAT(output, Contains("shapes failed: 5 parameter 1 (fc2) has the float32 shape [3, 4] on rank 0 but the "
                                "float32 shape [4, 3] on rank 1"));
    CHECK_THAT(output, Contains("dimensions failed: 5 parameter 0 (fc2) has 12 float32 elements on rank 0 but the "
                                "float32 shape [2, 2, 3] on rank 1"));
    CHECK_THAT(output, Contains("types failed: 5 parameter 0 (fc1) has 6 float32 elements on rank 0 but 6 float64 "
                                "elements on rank 1"));
    CHECK_THAT(output, Contains("count failed: 5 the model has 1 parameters on rank 0 but 2 on rank 1"));
    CHECK_THAT(output, Contains("buffers failed: 5 buffer 1 (steps) has 3 int32 elements on rank 0 but 2 int32 "
                                "elements on rank 1"));
    CHECK_THAT(output, Contains("options failed: 5 static_graph is 0 on rank 0 but 1 on rank 1: every rank must set "
                                "the same options"));
    CHECK_THAT(output, Contains("limits failed: 5 bucket_bytes is 200 on rank 0 but 100 on rank 1"));
    const bool is_its_own = &output == &outputs[1];
    CHECK_THAT(output, Contains(std::string("one rank's type failed: 1 ") + (is_its_own ? "" : "rank 1: ") +
                                "parameter 0 (steps) is int32: only floating-point"));
    CHECK_THAT(output, Contains("\ntype failed: 1 parameter 0 (steps) is int32"));
    CHECK_THAT(output,
               Contains("product failed: 1 parameter 0 (fc2) has 12 elements, but its shape has another number"));
    CHECK_THAT(output,
               Contains("negative failed: 1 parameter 0 (fc2) has 12 elements, but its shape has another number"));
    CHECK_THAT(output, Contains("view failed: 1 parameter 0 (fc1) has a gradient of its own"));
  }
}

TEST_CASE("DDP: a model destroyed in the middle of a step leaves no rank hanging", "[training][integration]") {
  const std::vector<std::string> outputs = run(2, "destroy in step");
  CHECK_THAT(outputs[0], Contains("barrier failed: 4 world: barrier #"));
  CHECK_THAT(outputs[0], Contains("DistributedDataParallel was destroyed in the middle of a step"));
  CHECK_THAT(outputs[1], Contains("barrier failed: 3 world: barrier #"));
  CHECK_THAT(outputs[1],
             Contains("rank 0 gave up: world: DistributedDataParallel was destroyed in the middle of a step"));
}

TEST_CASE("DDP: a rank killed in the middle of backward is named to the others, whose gradients stay",
          "[training][integration]") {
  for (const auto& [rank, said] : run_with_a_death(3, "die in backward", {1, "in backward", Others::Waiting})) {
    INFO("rank " << rank << " said: " << said);
    CHECK_THAT(said, Contains("synchronize failed: 3 world: all_reduce #"));
    CHECK_THAT(said, Contains("rank 1 on node b was killed by SIGKILL"));
    CHECK_THAT(said, Contains("mark_ready failed: 3 world: all_reduce #"));
  }
}
