// SPDX-License-Identifier: BSD-3-Clause
// Steps in CUDA graphs. device_graph_scenarios.cpp is what each rank does and checks by itself.
#include <catch2/catch.hpp>
#include <csignal>
#include <string>

#include "rendezvous/store/server.hpp"
#include "tests/runtime/device/device_job.hpp"
#include "tests/support/hosts.hpp"
#include "tests/support/process.hpp"

using Catch::Matchers::Contains;
using ddp::rendezvous::StoreServer;
using ddp::test::Ended;
using ddp::test::fakes;
using ddp::test::Job;
using ddp::test::no_child_left;
using ddp::test::one_gpu;
using ddp::test::real_gpus;
using ddp::test::run;
using ddp::testing::TemporaryFolder;

TEST_CASE("CUDA graph: many replays of a captured step come to what the steps themselves do",
          "[runtime][integration]") {
  run(2, "device graph replays", fakes({{"FAKE_NCCL_LAG", "2"}}));
}

TEST_CASE("CUDA graph: steps with a hook can be captured", "[runtime][integration]") {
  run(GENERATE(1, 3), "device graph replays hooks", fakes());
}

TEST_CASE("CUDA graph: what cannot be captured is refused with the reason, and the capture goes on",
          "[runtime][integration]") {
  const TemporaryFolder folder;
  for (const std::string& output : run(2, "device graph refusals", fakes({{"FOLDER", folder.path() + "/steps"}}))) {
    const char* const kGraph = "DistributedDataParallel: a CUDA graph cannot have this step: ";
    CHECK_THAT(output, Contains(std::string("first step failed: 1 ") + kGraph +
                                "the first step shows in which order gradients come: take it before the capture"));
    CHECK_THAT(output, Contains(std::string("unused failed: 1 ") + kGraph +
                                "the host waits until all ranks know which parameters were used: set static_graph"));
    CHECK_THAT(output, Contains("barrier failed: 1 world: barrier: the host waits for it: not while"));
    CHECK_THAT(output, Contains("checkpoint failed: 1 ") && Contains("copying tensors to the host: not while"));
  }
}

TEST_CASE("CUDA graph: operations of a graph and those that run are kept apart, and watched beside a capture",
          "[runtime][integration]") {
  for (const std::string& output : run(2, "device graph keeps apart", fakes())) {
    CHECK_THAT(output, Contains("outside failed: 1 world: all_reduce #2 (32 B): it was started before the capture of a "
                                "CUDA graph: wait for it before that"));
    CHECK_THAT(output, Contains("the host failed: 1 world: all_reduce #3 (32 B): it is a part of a CUDA graph, which "
                                "the host cannot wait for"));
    CHECK_THAT(output, Contains("libddp: world: all_reduce #4 (32 B): the capture of a CUDA graph ended without a wait "
                                "for it: nothing waits for its result when that graph is launched\n"));
  }
}

TEST_CASE("CUDA graph: a rank that dies ends what the others replay", "[runtime][integration]") {
  {
    StoreServer store({"127.0.0.1"}, 0);
    Job job(2, "device graph loses a rank", store.port(), true, fakes());
    for (std::size_t rank = 0; rank < 2; ++rank) job.wait_for_line(rank, "ready");
    job.kill(1, SIGKILL);
    const Ended ended = job.finish(0);
    INFO("rank 0 said: " << ended.output);
    CHECK(ended.code == 0);
    CHECK_THAT(ended.output, Contains("the next one failed: 4 world: all_reduce #3 (32 B): the group was aborted by an "
                                      "earlier error: world: another rank died or left"));
  }
  CHECK(no_child_left());
}

TEST_CASE("CUDA graph: all of this holds on a real GPU", "[runtime][integration][gpu]") {
  if (real_gpus() == 0) ddp::testing::skip("there is no CUDA device");
  const TemporaryFolder folder;
  ddp::test::Variables variables = one_gpu();
  variables["FOLDER"] = folder.path() + "/steps";
  const std::string scenario = GENERATE("device graph replays", "device graph replays hooks", "device graph refusals",
                                        "device graph keeps apart");
  CAPTURE(scenario);
  run(2, scenario, variables);
}
