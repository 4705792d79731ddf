// SPDX-License-Identifier: BSD-3-Clause
// The example programs do what they promise. The one for libtorch is in tests/interop.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/hosts.hpp"
#include "tests/support/process.hpp"

using namespace ddp::testing;

namespace {

// Returns the output of a job with that many workers, which must succeed and leave nothing.
std::string said(const std::string& workers, const std::string& program,
                 const std::map<std::string, std::string>& environment = {}) {
  Process::Options options;
  options.environment = environment;
  Process job({DDPRUN_BINARY, "--nproc_per_node", workers, program}, options);
  const Result result = job.wait();
  INFO(result.out << result.err);
  REQUIRE(result.code == 0);
  REQUIRE(job.all_gone());
  return result.out;
}

// Returns the numbers that follow `before` in the text.
std::vector<double> numbers_after(const std::string& before, const std::string& text) {
  std::vector<double> found;
  for (std::size_t at = text.find(before); at != std::string::npos; at = text.find(before, at + 1)) {
    found.push_back(std::stod(text.substr(at + before.size())));
  }
  return found;
}

// Returns environment variables for fake GPU libraries with two GPUs.
std::map<std::string, std::string> fakes() {
  return {{"DDP_CUDA_LIBRARY", FAKE_CUDA}, {"DDP_NCCL_LIBRARY", FAKE_NCCL}, {"FAKE_CUDA_DEVICES", "2"}};
}

void check_cuda(const std::string& out, std::size_t workers) {
  INFO(out);
  const std::vector<double> losses = numbers_after("loss ", out);
  REQUIRE(losses.size() == 3);
  CHECK(losses.back() < losses.front() / 10);
  const std::vector<double> weights = numbers_after("weight 7 is ", out);
  REQUIRE(weights.size() == workers);
  const double middle = 7 + (static_cast<double>(workers) - 1) / 2;  // a rank alone would find 7 plus its own number
  for (const double weight : weights) CHECK(std::abs(weight - middle) < 0.01);
}

}  // namespace

TEST_CASE("examples: ten lines learn the sine, all ranks the same", "[apps][integration]") {
  const int workers = GENERATE(1, 2, 4);
  const std::string out = said(std::to_string(workers), TEN_LINES);
  INFO(out);
  const std::vector<double> losses = numbers_after("loss ", out);
  REQUIRE(losses.size() == 5);
  CHECK(losses.back() < 0.01);
  CHECK(losses.back() < losses.front() / 100);
  const std::vector<double> learned = numbers_after("here ", out);
  REQUIRE(learned.size() == static_cast<std::size_t>(workers));
  for (const double sine : learned) {
    CHECK(sine == learned.front());
    CHECK(std::abs(sine - std::sin(1)) < 0.05);
  }
}

TEST_CASE("examples: the backend of a page carries out what it has, and what it lacks is refused",
          "[apps][integration]") {
  Process::Options options;
  options.environment = {{"DDP_BACKEND_PATH", PAGE_BACKEND_FOLDER}};
  const auto said_by = [&](const char* scenario) {
    return run({DDPRUN_BINARY, "--nproc-per-node", "3", COLLECTIVE_WORKER, scenario, "60000", "page"}, options);
  };
  const Result async = said_by("async");
  INFO(async.out << async.err);
  CHECK(async.code == 0);
  CHECK(async.out.find("wrong") == std::string::npos);
  const Result messages = said_by("messages");
  CHECK(messages.code == 1);
  CHECK(messages.out.find("the backend lacks this operation") != std::string::npos);
}

TEST_CASE("examples: cuda averages on GPUs that stand in for real ones", "[apps][integration]") {
  const std::string workers = GENERATE(as<std::string>(), "1", "2");
  check_cuda(said(workers, CUDA_EXAMPLE, fakes()), std::stoul(workers));
}

TEST_CASE("examples: cuda says in one line that there is no driver", "[apps][integration]") {
  Process::Options options;
  options.environment = {{"DDP_CUDA_LIBRARY", "/nowhere/libcuda.so"}};
  const Result result = run({CUDA_EXAMPLE}, options);
  CHECK(result.code == 1);
  CHECK(result.err == "there is no CUDA driver here\n");
}

TEST_CASE("examples: cuda averages on the GPUs of this machine", "[apps][integration][gpu]") {
  const Result alone = run({CUDA_EXAMPLE});
  if (alone.err.find("CUDA") != std::string::npos || alone.err.find("NCCL") != std::string::npos) skip(alone.err);
  REQUIRE(alone.code == 0);
  check_cuda(alone.out, 1);
  const std::string all = said("gpu", CUDA_EXAMPLE);
  check_cuda(all, numbers_after("weight 7 is ", all).size());
}
