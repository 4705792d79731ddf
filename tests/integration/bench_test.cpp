// SPDX-License-Identifier: BSD-3-Clause
// ddp_bench as one rank of a job.
#include <catch2/catch.hpp>

#include "tests/integration/ddprun.hpp"

using namespace ddp::testing;

TEST_CASE("ddp_bench: libddp and plain Gloo and memory are measured in each collective that they have",
          "[apps][integration]") {
  skip_with_sanitizer("there is no plain Gloo");
  Process job(ddprun_raw({"--nproc_per_node",
                          "2",
                          DDP_BENCH_BINARY,
                          "collectives",
                          "--seconds",
                          "0",
                          "--sizes",
                          "4",
                          "4096",
                          "--collectives",
                          "all_reduce",
                          "broadcast",
                          "reduce",
                          "all_gather",
                          "reduce_scatter",
                          "all_to_all",
                          "gather",
                          "scatter",
                          "barrier",
                          "--contenders",
                          "libddp",
                          "libddp_async",
                          "gloo",
                          "memory"}));
  const Result result = job.wait();
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(count(result.out, R"("contender":"libddp",)") == 8 * 2 + 1);  // barriers have no size
  CHECK(count(result.out, R"("contender":"libddp_async",)") == 8 * 2 + 1);
  CHECK(count(result.out, R"("contender":"gloo",)") == 7 * 2 + 1);  // Gloo has no reduce_scatter
  CHECK(count(result.out, R"("contender":"memory",)") == 8 * 2);
  CHECK(count(result.out, R"("median_us":0.0,)") == 0);
  CHECK(job.all_gone());
}

// Each step's gradients are compared with the expected ones before any step is timed.
TEST_CASE("ddp_bench: a training step is measured without communication, with one all_reduce and with DDP",
          "[apps][integration]") {
  Process job(ddprun_raw({"--nproc_per_node", "2", DDP_BENCH_BINARY, "ddp", "--model", "mlp", "--backward", "0.001",
                          "--bucket-mib", "1", "25", "--rounds", "2"}));
  const Result result = job.wait();
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  CHECK(count(result.out, R"("step":"backward")") == 1);
  CHECK(count(result.out, R"("step":"plain")") == 1);
  CHECK(count(result.out, R"("step":"ddp")") == 2);  // one for each bucket size
  CHECK(count(result.out, R"("step":"ddp_view")") == 2);
  CHECK(job.all_gone());
}

// Both results are checked before either is timed.
TEST_CASE("ddp_bench: on the memory of GPUs libddp and NCCL itself are measured", "[apps][integration]") {
  Process::Options fakes;
  fakes.environment = {{"DDP_CUDA_LIBRARY", FAKE_CUDA}, {"DDP_NCCL_LIBRARY", FAKE_NCCL}, {"FAKE_CUDA_DEVICES", "2"}};
  CHECK(run({DDP_BENCH_BINARY, "nccl", "--count"}, fakes).out == "{\"gpus\":2}\n");
  Process job(ddprun_raw({"--nproc_per_node", "2", DDP_BENCH_BINARY, "nccl", "--seconds", "0", "--sizes", "4", "4096",
                          "--collectives", "all_reduce", "broadcast", "all_gather", "reduce_scatter"}),
              fakes);
  const Result result = job.wait();
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  CHECK(count(result.out, R"("contender":"libddp",)") == 4 * 2);
  CHECK(count(result.out, R"("contender":"nccl",)") == 4 * 2);
  CHECK(count(result.out, R"("median_us":0.0,)") == 0);
  CHECK(job.all_gone());
}

TEST_CASE("ddp_bench: without a GPU the output says why", "[apps][integration]") {
  Process::Options nowhere;
  nowhere.environment = {{"DDP_CUDA_LIBRARY", "/nowhere/libcuda.so.1"}};
  const Result result = run({DDP_BENCH_BINARY, "nccl", "--count"}, nowhere);
  CHECK(result.code == 0);
  CHECK_THAT(result.out, Catch::StartsWith("{\"gpus\":0,\"why\":\"the CUDA driver cannot be opened: /nowhere/"));
}
