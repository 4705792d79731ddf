// SPDX-License-Identifier: BSD-3-Clause
// The example job under ddprun: the same training whatever the number of workers, and whatever happens to them.
#include <catch2/catch.hpp>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <sstream>

#include "tests/support/process.hpp"

using namespace ddp::testing;

namespace {

// A small model, so that sanitizer builds end too. It keeps its files in `folder`.
std::vector<std::string> train(const TemporaryFolder& folder, const std::string& name, int workers,
                               const std::vector<std::string>& train_options,
                               const std::vector<std::string>& ddprun_options = {}) {
  std::vector<std::string> words = {DDPRUN_BINARY, "--nproc_per_node=" + std::to_string(workers), "--rdzv-id=t"};
  words.insert(words.end(), ddprun_options.begin(), ddprun_options.end());
  for (const std::string& word : {std::string(TRAIN_BINARY), std::string("--width=32"), std::string("--context=32"),
                                  std::string("--validate-every=0"), std::string("--sample-bytes=20")}) {
    words.push_back(word);
  }
  words.push_back("--checkpoint=" + (folder / (name + ".safetensors")));
  words.push_back("--log=" + (folder / (name + ".log")));
  words.insert(words.end(), train_options.begin(), train_options.end());
  return words;
}

// step -> loss; a resumed run writes a step again, and the last line counts.
std::map<int, double> losses(const std::string& path) {
  std::map<int, double> found;
  std::istringstream lines(read_file(path));
  for (int step; lines >> step;) lines >> found[step];
  return found;
}

}  // namespace

TEST_CASE("train: one and four workers do the same optimisation", "[apps][integration]") {
  const TemporaryFolder folder;
  REQUIRE(run(train(folder, "one", 1, {"--steps=50"})).code == 0);
  REQUIRE(run(train(folder, "four", 4, {"--steps=50"})).code == 0);
  const auto one = losses(folder / "one.log"), four = losses(folder / "four.log");
  REQUIRE(one.size() == 50);
  REQUIRE(four.size() == 50);
  CHECK(one.rbegin()->second < one.begin()->second - 1);  // and it learns
  for (const auto& [step, loss] : one) {
    CAPTURE(step);
    CHECK(std::abs(four.at(step) - loss) <= 1e-4 * loss);
  }
}

TEST_CASE("train: two runs with the same workers are bitwise equal", "[apps][integration]") {
  const TemporaryFolder folder;
  REQUIRE(run(train(folder, "first", 4, {"--steps=30"})).code == 0);
  REQUIRE(run(train(folder, "second", 4, {"--steps=30"})).code == 0);
  CHECK((read_file(folder / "first.safetensors") == read_file(folder / "second.safetensors")));
  CHECK(read_file(folder / "first.log") == read_file(folder / "second.log"));
}

TEST_CASE("train: a worker killed in the middle costs time, not a bit of the result", "[apps][integration]") {
  const TemporaryFolder folder;
  const std::vector<std::string> options = {"--steps=120", "--checkpoint-every=10"};
  REQUIRE(run(train(folder, "undisturbed", 4, options)).code == 0);

  Process job(train(folder, "killed", 4, options, {"--max-restarts=3"}));
  job.wait_for("checkpoint after 20 steps");
  const auto workers = children_of(only_child_of(only_child_of(job.pid())));  // below guardian, keeper and agent
  REQUIRE(workers.size() == 4);
  ::kill(workers[2], SIGKILL);
  const Result result = job.wait();
  CAPTURE(result.out, result.err);
  CHECK(result.code == 0);
  CHECK(count(result.err, "restart 1 of 3: rank 2 on node") == 1);
  CHECK(count(result.err, "was killed by SIGKILL") == 1);
  CHECK((read_file(folder / "undisturbed.safetensors") == read_file(folder / "killed.safetensors")));
  CHECK(losses(folder / "undisturbed.log") == losses(folder / "killed.log"));
  CHECK(job.left_over().empty());
}

TEST_CASE("train: bad input is one line and nothing is overwritten", "[apps][integration]") {
  const TemporaryFolder folder;
  write_file(folder / "empty", "");
  write_file(folder / "small", "too little to fill a batch");
  REQUIRE(run(train(folder, "good", 2, {"--steps=3"})).code == 0);
  const std::string good = read_file(folder / "good.safetensors");
  write_file(folder / "truncated.safetensors", good.substr(0, good.size() / 2));
  write_file(folder / "other.safetensors", good);

  struct Case {
    std::string checkpoint;
    std::vector<std::string> options;
    int code;
    std::string said;
  };
  const std::vector<Case> cases = {
      {"new", {"--data=" + (folder / "nothing")}, 2, "no such file or folder"},
      {"new", {"--data=" + (folder / "empty")}, 2, "has no bytes to train on: name a file"},
      {"new", {"--data=" + (folder / "small")}, 2, "give more data"},
      {"new", {"--global-batch=7"}, 2, "cannot be split evenly over 2 workers"},
      {"truncated", {"--steps=3", "--resume"}, 1, "truncated.safetensors"},
      {"other", {"--steps=3", "--layers=1", "--resume"}, 1, "other.safetensors"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.checkpoint, c.options);
    const std::string before = read_file(folder / (c.checkpoint + ".safetensors"));
    const Result result = run(train(folder, c.checkpoint, 2, c.options));
    CAPTURE(result.err);
    CHECK(result.code == c.code);
    CHECK(count(result.err, c.said) == 1);
    CHECK((read_file(folder / (c.checkpoint + ".safetensors")) == before));
  }
  CHECK_FALSE(std::filesystem::exists(folder / "new.safetensors"));
}
