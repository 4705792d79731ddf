// SPDX-License-Identifier: BSD-3-Clause
// DistributedDataParallel against PyTorch's, on the same numbers. PyTorch's results are in
// golden/ddp, written by make_golden.py there. Each rank compares its results, in
// golden_worker.cpp.
#include <catch2/catch.hpp>
#include <string>

#include "tests/support/process.hpp"

using namespace ddp::testing;

namespace {

void agrees_with_pytorch(const std::string& what) {
  const char* backend = GENERATE("ddp", "gloo");
  for (const char* ranks : {"1", "2", "3", "4", "8"}) {
    Process job({DDPRUN_BINARY, "--nproc-per-node", ranks, GOLDEN_WORKER, GOLDEN_FOLDER, what, backend});
    const Result result = job.wait();
    INFO(ranks << " ranks over " << backend << " said: " << result.out << result.err);
    CHECK(result.out.find("wrong") == std::string::npos);
    CHECK(result.out.find("differ from PyTorch's") != std::string::npos);
    CHECK(result.code == 0);
    CHECK(job.left_over().empty());
  }
}

}  // namespace

TEST_CASE("golden: averages of float32 and float64 are PyTorch's", "[training][integration]") {
  agrees_with_pytorch("plain");
}

TEST_CASE("golden: averages of a model of two types are PyTorch's", "[training][integration]") {
  agrees_with_pytorch("mixed");
}

TEST_CASE("golden: gradients that live in buckets are PyTorch's", "[training][integration]") {
  agrees_with_pytorch("bucket_view");
}

TEST_CASE("golden: averages with a static graph are PyTorch's", "[training][integration]") {
  agrees_with_pytorch("static_graph");
}

TEST_CASE("golden: what has accumulated under no_sync is averaged as by PyTorch", "[training][integration]") {
  agrees_with_pytorch("no_sync");
}

TEST_CASE("golden: parameters that some ranks or all did not use have the gradients that PyTorch gives them",
          "[training][integration]") {
  agrees_with_pytorch("unused");
}

TEST_CASE("golden: ranks with more input than others average as in PyTorch, over all ranks or over those still active",
          "[training][integration]") {
  agrees_with_pytorch("join");
}

TEST_CASE("golden: averages with the built-in hooks equal PyTorch's up to rounding", "[training][integration]") {
  agrees_with_pytorch("hooks");
}

TEST_CASE("golden: a network's losses equal those in PyTorch, and those of one process with the whole batch",
          "[training][integration]") {
  agrees_with_pytorch("train");
}
