// SPDX-License-Identifier: BSD-3-Clause
// Jobs of real processes on GPU memory: over the fakes with one GPU per rank, and on the first real GPU where there is
// one. device_scenarios.cpp is what each rank does and checks by itself.
#include <catch2/catch.hpp>
#include <csignal>
#include <string>
#include <vector>

#include "rendezvous/store/server.hpp"
#include "tests/runtime/device/device_job.hpp"
#include "tests/support/hosts.hpp"

using Catch::Matchers::Contains;
using ddp::rendezvous::StoreServer;
using ddp::test::Ended;
using ddp::test::fakes;
using ddp::test::Job;
using ddp::test::no_child_left;
using ddp::test::one_gpu;
using ddp::test::real_gpus;
using ddp::test::run;
using ddp::test::Variables;

namespace {

int milliseconds_in(const std::string& output) { return std::stoi(output.substr(output.find("took ") + 5)); }

}  // namespace

TEST_CASE("device: every operation gives the right result for every type", "[runtime][integration]") {
  const int size = GENERATE(1, 2, 3, 4);
  const char* lag = GENERATE("0", "2");
  // LeakSanitizer of GCC 12 crashes when it reads the threads' storage of three ranks.
  run(size, "device collectives", fakes({{"FAKE_NCCL_LAG", lag}, {"LSAN_OPTIONS", "use_tls=0"}}));
}

TEST_CASE("device: messages go from rank to rank", "[runtime][integration]") {
  for (const std::string& output : run(GENERATE(2, 4), "device messages", fakes())) {
    CHECK_THAT(output, Contains("from anybody failed: 1 recv: NCCL receives from one rank; name it"));
  }
}

TEST_CASE("device: an operation waits for the current stream, and the host does not wait", "[runtime][integration]") {
  const char* lag = GENERATE("0", "2", "1000");
  run(GENERATE(1, 2, 4), "device follows", fakes({{"FAKE_NCCL_LAG", lag}}));
}

TEST_CASE("device: the current stream waits for an operation from wait() on, not before", "[runtime][integration]") {
  run(GENERATE(2, 4), "device is followed", fakes());
}

TEST_CASE("device: each thread has a current stream per device", "[runtime][integration]") {
  for (const std::string& output : run(2, "device streams", fakes())) {
    CHECK_THAT(output, Contains("no such device failed: 1 there is no CUDA device -1"));
  }
}

TEST_CASE("device: a group serves both kinds of memory, with one sequence of numbers", "[runtime][integration]") {
  run(GENERATE(2, 4), "device mixed", fakes());
}

TEST_CASE("device: what cannot be done is refused with a reason and leaves the group alive", "[runtime][integration]") {
  for (const std::string& output : run(GENERATE(1, 2), "device refusals", fakes())) {
    CHECK_THAT(output, Contains("bits failed: 1 all_reduce: NCCL has no bitwise reductions"));
    CHECK_THAT(output, Contains("int16 failed: 1 all_reduce: NCCL has no reductions of int16"));
    CHECK_THAT(output, Contains("elsewhere failed: 1 broadcast: memory of cuda:"));
    CHECK_THAT(output, Contains("two devices failed: 1 all_gather: input is on the CPU but output is on cuda:"));
    CHECK_THAT(output, Contains("group without one failed: 1 world: the group has no NCCL communicator"));
  }
}

TEST_CASE("device: memory for which a group has no backend is refused with the backend to give",
          "[runtime][integration]") {
  for (const std::string& output : run(2, "device refusals", fakes())) {
    CHECK_THAT(output,
               Contains("the CPU failed: 1 world: all_reduce of memory of the CPU: the group has no backend for "
                        "it; give it \"gloo\", or \"cpu:gloo,cuda:nccl\" for both"));
  }
}

TEST_CASE("device: groups of some of the ranks work on the GPU too, split ones by NCCL's own split",
          "[runtime][integration]") {
  const std::vector<std::string> outputs = run(4, "device groups", fakes({{"FAKE_NCCL_TRACE", "1"}}));
  for (const std::string& output : outputs) CHECK_THAT(output, Contains("nccl: split\n"));
}

TEST_CASE("device: a group leaves NCCL in good order", "[runtime][integration]") {
  for (const std::string& output : run(2, "device joins and leaves", fakes({{"FAKE_NCCL_TRACE", "1"}}))) {
    CHECK(output == "nccl: init\nnccl: finalize\nnccl: destroy\n");
  }
}

TEST_CASE("device: an operation that does not end is a timeout at its deadline, aborted on every rank",
          "[runtime][integration]") {
  const std::vector<std::string> outputs = run(
      2, "device fails",
      fakes({{"FAKE_NCCL_STUCK_OP", "2"}, {"FAKE_NCCL_RANK", "0"}, {"TEST_TIMEOUT", "1"}, {"FAKE_NCCL_TRACE", "1"}}));
  for (const std::string& output : outputs) {
    CHECK_THAT(output, Contains("world: all_reduce #2 (1.0 kB): "));
    CHECK_THAT(output, Contains("the one after failed: 4 world: all_reduce #3 (1.0 kB): the group was aborted by an "
                                "earlier error: world: all_reduce #2 (1.0 kB)"));
    CHECK_THAT(output, Contains("communicator failed: 4 world: the group's NCCL communicator was aborted"));
    CHECK_THAT(output, Contains("nccl: abort\n"));
    CHECK_THAT(output, !Contains("nccl: finalize"));
    CHECK(milliseconds_in(output) < 5000);
  }
  CHECK_THAT(outputs[0] + outputs[1],
             Contains("all_reduce failed: 2 world: all_reduce #2 (1.0 kB): not done in 300 ms"));
}

TEST_CASE("device: an asynchronous error of NCCL ends the operation at once, with NCCL's text",
          "[runtime][integration]") {
  const std::vector<std::string> outputs =
      run(2, "device fails", fakes({{"FAKE_NCCL_ASYNC_ERROR_OP", "2"}, {"FAKE_NCCL_RANK", "1"}}));
  CHECK_THAT(outputs[1],
             Contains("all_reduce failed: 6 world: all_reduce #2 (1.0 kB): NCCL: unhandled system error: the "
                      "network is gone, as configured\n"));
  CHECK_THAT(outputs[0], Contains("all_reduce failed: 3 world: all_reduce #2 (1.0 kB): "));
  for (const std::string& output : outputs) CHECK(milliseconds_in(output) < 5000);
}

TEST_CASE("device: an operation that NCCL refuses fails with NCCL's text", "[runtime][integration]") {
  for (const std::string& output : run(1, "device fails", fakes({{"FAKE_NCCL_REFUSED_OP", "2"}}))) {
    CHECK_THAT(output, Contains("all_reduce failed: 6 world: all_reduce #2 (1.0 kB): NCCL: another error\n"));
    CHECK_THAT(output, Contains("the one after failed: 4 world: all_reduce #3"));
  }
}

TEST_CASE("device: a killed rank fails the others at once, named as the launcher names it",
          "[runtime][integration][P23]") {
  const int size = GENERATE(2, 4);
  {
    StoreServer store({"127.0.0.1"}, 0);
    Job job(size, "device fails", store.port(), true, fakes({{"TEST_VICTIM", "1"}}));
    for (int rank = 0; rank < size; ++rank) job.wait_for_line(static_cast<std::size_t>(rank), "ready");
    job.kill(1, SIGKILL);
    store.set("/ddprun/failure", "rank 1 on node b was killed by SIGKILL");
    CHECK(job.finish(1).signal == SIGKILL);
    for (int rank = 0; rank < size; ++rank) {
      if (rank == 1) continue;
      const Ended ended = job.finish(static_cast<std::size_t>(rank));
      INFO("rank " << rank << " said: " << ended.output);
      CHECK(ended.code == 0);
      CHECK_THAT(ended.output,
                 Contains("all_reduce failed: 3 world: all_reduce #2 (1.0 kB): rank 1 on node b was killed "
                          "by SIGKILL\n"));
      CHECK_THAT(ended.output, Contains("done"));
      CHECK(milliseconds_in(ended.output) < 5000);
    }
  }
  CHECK(no_child_left());
}

TEST_CASE("device: without a launcher a killed rank is an error with NCCL's text", "[runtime][integration][P23]") {
  {
    StoreServer store({"127.0.0.1"}, 0);
    Job job(2, "device fails", store.port(), true, fakes({{"TEST_VICTIM", "1"}}));
    for (std::size_t rank = 0; rank < 2; ++rank) job.wait_for_line(rank, "ready");
    job.kill(1, SIGKILL);
    const Ended ended = job.finish(0);
    INFO("rank 0 said: " << ended.output);
    CHECK(ended.code == 0);
    CHECK_THAT(ended.output, Contains("all_reduce failed: 3 world: all_reduce #2 (1.0 kB): another rank died or left "
                                      "(NCCL: remote process exited or there was a network error: connection closed by "
                                      "peer, rank 1)"));
  }
  CHECK(no_child_left());
}

TEST_CASE("device: ranks learn of a failure when NCCL's kernels have ended, before its abort returns",
          "[runtime][integration]") {
  const Variables slow = {{"FAKE_NCCL_ASYNC_ERROR_OP", "2"}, {"FAKE_NCCL_ABORT", "slow"}, {"FAKE_NCCL_TRACE", "1"}};
  for (const std::string& output : run(2, "device fails", fakes(slow))) {
    CHECK(output.find("all_reduce failed: ") < output.find("nccl: abort returns\n"));
    CHECK_THAT(output, Contains("nccl: abort returns\n"));  // and is waited for
  }
}

TEST_CASE("device: an abort from which NCCL does not return is reported, and delays no rank for long",
          "[runtime][integration]") {
  for (const std::string& output :
       run(1, "device fails",
           fakes({{"FAKE_NCCL_STUCK_OP", "2"}, {"FAKE_NCCL_ABORT", "hang"}, {"TEST_TIMEOUT", "1"}}))) {
    CHECK_THAT(output, Contains("not done in 300 ms"));
    CHECK_THAT(output, Contains("(NCCL does not return from an abort: end this process)"));
    CHECK(milliseconds_in(output) < 30'000);
  }
}

TEST_CASE("device: a rank that cannot join is an error that names it and its device", "[runtime][integration]") {
  StoreServer store({"127.0.0.1"}, 0);
  Job job(1, "device joins and leaves", store.port(), true, fakes({{"FAKE_NCCL_INIT", "fail"}}));
  const Ended ended = job.finish(0);
  CHECK(ended.code == 1);
  CHECK(ended.output ==
        "error: 6 world: joining on cuda:0: NCCL: unhandled system error: the fake "
        "fails, as configured\n");
}

TEST_CASE("device: a machine without a GPU or NCCL is an error before any rank waits", "[runtime][integration]") {
  StoreServer store({"127.0.0.1"}, 0);
  const auto said = [&](const Variables& variables) {
    Job job(1, "device joins and leaves", store.port(), true, variables);
    return job.finish(0).output;
  };
  CHECK_THAT(said(fakes({{"FAKE_CUDA_DEVICES", "0"}})), Contains("starting the CUDA driver: no CUDA-capable device"));
  CHECK_THAT(said({{"DDP_CUDA_LIBRARY", FAKE_CUDA}, {"DDP_NCCL_LIBRARY", "/nowhere/libnccl.so.2"}}),
             Contains("error: 6 NCCL cannot be opened: /nowhere/libnccl.so.2"));
  CHECK_THAT(said({{"DDP_CUDA_LIBRARY", "/nowhere/libcuda.so.1"}, {"DDP_NCCL_LIBRARY", FAKE_NCCL}}),
             Contains("error: 6 the CUDA driver cannot be opened: /nowhere/libcuda.so.1"));
}

TEST_CASE("device: \"nccl\" is available where NCCL, a driver and a GPU are, and the choice between it and gloo holds",
          "[runtime][integration]") {
  StoreServer store({"127.0.0.1"}, 0);
  const auto said = [&](const Variables& variables) {
    Job job(1, "device choice", store.port(), true, variables);
    const Ended ended = job.finish(0);
    CHECK(ended.code == 0);
    return ended.output;
  };
  CHECK(said(fakes()) == "nccl\n");
  CHECK_THAT(said(fakes({{"FAKE_CUDA_DEVICES", "0"}})), Contains("gloo: starting the CUDA driver: no CUDA-capable"));
  CHECK_THAT(said({{"DDP_CUDA_LIBRARY", FAKE_CUDA}, {"DDP_NCCL_LIBRARY", "/nowhere/libnccl.so.2"}}),
             Contains("gloo: NCCL cannot be opened"));
  CHECK_THAT(said({{"DDP_CUDA_LIBRARY", "/nowhere/libcuda.so.1"}, {"DDP_NCCL_LIBRARY", FAKE_NCCL}}),
             Contains("gloo: the CUDA driver cannot be opened"));
}

TEST_CASE("device: on a real GPU the results and streams are the same", "[runtime][integration][gpu]") {
  if (real_gpus() == 0) ddp::testing::skip("there is no CUDA device");
  const std::string scenario = GENERATE("device collectives", "device follows", "device streams", "device refusals");
  const int size = GENERATE(1, 2);
  CAPTURE(scenario, size);
  run(size, scenario, one_gpu());
}

TEST_CASE("device: on a real GPU ranks meet, in groups with both backends too", "[runtime][integration][gpu]") {
  if (real_gpus() == 0) ddp::testing::skip("there is no CUDA device");
  run(2, GENERATE("device messages", "device is followed", "device mixed", "device joins and leaves"), one_gpu());
}

TEST_CASE("device: on a real GPU a killed rank fails the others at once", "[runtime][integration][gpu][P23]") {
  if (real_gpus() == 0) ddp::testing::skip("there is no CUDA device");
  {
    StoreServer store({"127.0.0.1"}, 0);
    ddp::test::Variables variables = one_gpu();
    variables["TEST_VICTIM"] = "1";
    Job job(2, "device fails", store.port(), true, variables);
    for (std::size_t rank = 0; rank < 2; ++rank) job.wait_for_line(rank, "ready");
    job.kill(1, SIGKILL);
    store.set("/ddprun/failure", "rank 1 on node b was killed by SIGKILL");
    const Ended ended = job.finish(0);
    INFO("rank 0 said: " << ended.output);
    CHECK(ended.code == 0);
    CHECK_THAT(ended.output,
               Contains("all_reduce failed: 3 world: all_reduce #2 (1.0 kB): rank 1 on node b was killed"));
    CHECK(milliseconds_in(ended.output) < 5000);
  }
  CHECK(no_child_left());
}
