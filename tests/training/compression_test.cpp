// SPDX-License-Identifier: BSD-3-Clause
// Compressed gradients with real processes: what each rank checks by itself is in compression_scenarios.cpp.
#include <catch2/catch.hpp>
#include <csignal>
#include <string>

#include "rendezvous/store_server.hpp"
#include "tests/runtime/job.hpp"
#include "tests/runtime/run_job.hpp"

using Catch::Matchers::Contains;
using ddp::rendezvous::StoreServer;
using ddp::test::Job;
using ddp::test::no_child_left;
using ddp::test::run;
using ddp::test::tell_failure;

TEST_CASE("compressed gradients: every hook averages parameters of every type", "[training][integration]") {
  const int size = GENERATE(1, 2, 4);
  run(size, "compressed, every type");
}

TEST_CASE("compressed gradients: ranks with less input go along with zeros, whatever the hook",
          "[training][integration]") {
  const int size = GENERATE(1, 2, 4);
  run(size, "compressed, uneven");
}

TEST_CASE("compressed gradients: what cannot be registered says why and leaves room for what can",
          "[training][integration]") {
  const std::string output = run(1, "compression mistakes")[0];
  CHECK_THAT(output, Contains("kind failed: 1 there is no built-in communication hook 9"));
  CHECK_THAT(output, Contains("rate failed: 1 PowerSGD: min_compression_rate is -1.000000, not above 0"));
  CHECK_THAT(output, Contains("second failed: 1 DistributedDataParallel: there is a communication hook already"));
}

TEST_CASE("compressed gradients: when a rank is killed the others' step fails and names it",
          "[training][integration]") {
  const std::string hook = GENERATE("allreduce", "fp16", "bf16", "PowerSGD");
  StoreServer store({"127.0.0.1"}, 0);
  {
    Job job(3, "die under " + hook, store.port(), true);
    for (const std::size_t rank : {0U, 1U, 2U}) job.wait_for_line(rank, "here");
    job.kill(1, SIGKILL);
    job.finish(1);
    tell_failure(store, "1", "rank 1 was killed by SIGKILL");
    for (const std::size_t rank : {0U, 2U}) {
      const ddp::test::Ended ended = job.finish(rank);
      INFO(hook << ": rank " << rank << " said: " << ended.output);
      CHECK(ended.code == 0);
      CHECK_THAT(ended.output, Contains("step failed: "));  // by this loss, or later by that of the group
      CHECK_THAT(ended.output, Contains("rank 1 was killed by SIGKILL"));
    }
  }
  CHECK(no_child_left());
}
