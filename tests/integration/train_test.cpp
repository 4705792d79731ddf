// SPDX-License-Identifier: BSD-3-Clause
// The example job under ddprun: the result is the same for any number of workers, whatever happens
// to them.
#include <catch2/catch.hpp>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <sstream>
#include <thread>

#include "tests/support/hosts.hpp"
#include "tests/support/process.hpp"
#include "tests/support/sanitizer.hpp"

using namespace ddp::testing;

namespace {

// Returns a job with a small model, so that sanitizer builds finish too. Its files are in `folder`.
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

// Returns the loss of each step. A resumed run writes some steps again; the last line counts.
std::map<int, double> losses(const std::string& path) {
  std::map<int, double> found;
  std::istringstream lines(read_file(path));
  for (int step; lines >> step;) lines >> found[step];
  return found;
}

// Counts the broadcasts in the flight recorder, which a worker writes when it aborts.
int broadcasts_of_a_run(const TemporaryFolder& folder, std::vector<std::string> options) {
  options.insert(options.end(), {"--steps=1000000", "--checkpoint-every=1"});
  const TemporaryFolder logs;
  Process::Options remember;
  remember.environment = {{"DDP_FLIGHT_RECORDER_SIZE", "100000"}};
  Process job(train(folder, "run", 2, options, {"--log-dir=" + logs.path()}), remember);
  job.wait_for("checkpoint after", 2);
  const auto workers = children_of(only_child_of(only_child_of(job.pid())));  // below guardian, keeper and agent
  REQUIRE(workers.size() == 2);
  ::kill(workers[1], SIGABRT);
  CHECK(job.wait().code == 128 + SIGABRT);
  CHECK(job.left_over().empty());
  for (const auto& entry : std::filesystem::recursive_directory_iterator(logs.path())) {
    if (entry.path().filename() == "flight_recorder_rank1.json") {
      return count(read_file(entry.path()), R"("operation": "broadcast")");
    }
  }
  return -1;
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

TEST_CASE("train: --clip takes effect below the gradient's norm, and 0 means no limit", "[apps][integration]") {
  const TemporaryFolder folder;
  for (const std::string limit : {"0", "1e9", "1e-9"}) {
    REQUIRE(run(train(folder, limit, 2, {"--steps=5", "--clip=" + limit})).code == 0);
  }
  CHECK(losses(folder / "0.log") == losses(folder / "1e9.log"));
  CHECK(losses(folder / "0.log") != losses(folder / "1e-9.log"));
}

TEST_CASE("train: the first steps of a longer warm-up are smaller", "[apps][integration]") {
  const TemporaryFolder folder;
  REQUIRE(run(train(folder, "none", 2, {"--steps=2", "--warmup=0"})).code == 0);
  REQUIRE(run(train(folder, "long", 2, {"--steps=2", "--warmup=100"})).code == 0);
  const auto none = losses(folder / "none.log"), longer = losses(folder / "long.log");
  CHECK(none.at(1) == longer.at(1));  // before any step was taken
  CHECK(none.at(2) < longer.at(2));
}

TEST_CASE("train: the optimizer's state is broadcast when a training resumes, not when it starts",
          "[apps][integration]") {
  const TemporaryFolder folder;
  const int fresh = broadcasts_of_a_run(folder, {});
  const int continued = broadcasts_of_a_run(folder, {"--resume"});
  constexpr int kStateTensors = 57;  // two for each of 28 parameters, and the number of steps
  CHECK(fresh > 0);
  CHECK(continued == fresh + kStateTensors + 1);  // and the number of sequences read
}

TEST_CASE("train: with --keep, workers killed at any instant cost no bit and no checkpoint", "[apps][integration]") {
  const char* given = std::getenv("DDPRUN_KEPT_KILLS");
  const int kills = given != nullptr ? std::atoi(given) : 8;
  const unsigned seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const TemporaryFolder folder;
  const std::vector<std::string> options = {"--steps=" + std::to_string(100 + 150 * kills),
                                            "--checkpoint-every=1000000"};
  Process::Options patient;
  patient.deadline = kDeadline * (kIsSanitized ? 5 : 1) + std::chrono::seconds(kills);
  REQUIRE(run(train(folder, "undisturbed", 4, options), patient).code == 0);

  std::vector<std::string> with_keep = options;
  with_keep.emplace_back("--keep");
  Process job(train(folder, "killed", 4, with_keep, {"--keep-memory", "--max-restarts=1000000"}), patient);
  job.wait_for("memory is kept from now on");
  const pid_t agent = only_child_of(only_child_of(job.pid()));  // below guardian and keeper
  for (int killed = 0; killed < kills; ++killed) {
    job.wait_for("tokens/s", count(job.out(), "tokens/s") + 3);                 // it makes steps
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 40'000));  // an instant of them
    const auto workers = children_of(agent);
    if (workers.empty()) break;  // it has made them all
    const bool all = random() % 10 == 0;
    for (const pid_t worker : workers) {
      if (all) ::kill(worker, SIGKILL);
    }
    ::kill(workers[random() % workers.size()], SIGKILL);
  }
  const Result result = job.wait();
  CAPTURE(result.out, result.err);
  CHECK(result.code == 0);
  CHECK(job.all_gone());
  const int went_on = count(result.err, "kept memory \"train\": every rank");
  CHECK(went_on > kills / 3);  // some kills hit workers that had not begun
  CHECK(count(result.out, "continuing") == 0);
  CHECK((read_file(folder / "undisturbed.safetensors") == read_file(folder / "killed.safetensors")));
}

TEST_CASE("train: a worker killed in the middle costs time, not a bit of the result", "[apps][integration][P23]") {
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

TEST_CASE("train: a worker that dies as it joins, or while it writes a checkpoint, costs not a bit of the result",
          "[apps][integration][P23]") {
  skip_with_sanitizer("a preloaded library would come before the sanitizer's");
  const TemporaryFolder folder;
  const std::vector<std::string> options = {"--steps=20", "--checkpoint-every=5"};
  REQUIRE(run(train(folder, "undisturbed", 4, options)).code == 0);
  struct Case {
    const char* who;  // rank 0 writes the checkpoint
    int rank;
  };
  for (const Case& c : {Case{"1:socket", 1}, Case{"0:fsync", 0}, Case{"0:rename", 0}}) {
    CAPTURE(c.who);
    Process::Options faulty;
    faulty.environment = {{"LD_PRELOAD", FAKE_LIBC}, {"FAKE_LIBC_DIE", c.who}};
    std::filesystem::remove(folder / "killed.safetensors");
    std::filesystem::remove(folder / "killed.log");
    Process job(train(folder, "killed", 4, options, {"--max-restarts=1"}), faulty);
    const Result result = job.wait();
    CAPTURE(result.out, result.err);
    CHECK(result.code == 0);
    CHECK(count(result.err, "restart 1 of 1: rank " + std::to_string(c.rank) + " ") == 1);
    CHECK(count(result.err, "--shutdown-timeout") == 0);
    CHECK((read_file(folder / "undisturbed.safetensors") == read_file(folder / "killed.safetensors")));
    CHECK(losses(folder / "undisturbed.log") == losses(folder / "killed.log"));
    CHECK(job.left_over().empty());
  }
}

TEST_CASE("train: workers killed at any moment, again and again, cost time, not a bit of the result",
          "[apps][integration][P23]") {
  const int kills = getenv("DDPRUN_TEST_FULL_MATRIX") ? 200 : 10;
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  const TemporaryFolder folder;
  // More steps than can be done before the last kill.
  const std::vector<std::string> options = {"--steps=" + std::to_string(20 * kills), "--checkpoint-every=1"};
  Process::Options patient;
  patient.deadline = std::chrono::seconds(600);
  REQUIRE(run(train(folder, "undisturbed", 4, options), patient).code == 0);

  Process job(train(folder, "killed", 4, options, {"--max-restarts=" + std::to_string(kills)}), patient);
  const auto children = [](pid_t pid) {  // works also for a process that is about to start or end
    try {
      return children_of(pid);
    } catch (const std::filesystem::filesystem_error&) {
      return std::vector<pid_t>();
    }
  };
  const auto find_workers = [&] {  // below guardian, keeper and agent
    const std::vector<pid_t> keeper = children(job.pid());
    const std::vector<pid_t> agent = keeper.empty() ? keeper : children(keeper.front());
    return agent.empty() ? agent : children(agent.front());
  };
  for (int killed = 0; killed < kills; ++killed) {
    if (killed > 0) job.wait_for("restart " + std::to_string(killed) + " of ");
    std::vector<pid_t> workers;
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while ((workers = find_workers()).size() < 4) REQUIRE(std::chrono::steady_clock::now() < deadline);
    // A random moment, from before the workers have met to several steps later: the moment is what
    // is tested.
    std::this_thread::sleep_for(std::chrono::microseconds(std::uniform_int_distribution<int>(0, 60'000)(random)));
    ::kill(workers[std::uniform_int_distribution<std::size_t>(0, 3)(random)], SIGKILL);
  }
  const Result result = job.wait();
  CAPTURE(seed, result.err);
  CHECK(result.code == 0);
  CHECK(count(result.err, "was killed by SIGKILL") == kills);
  CHECK(count(result.err, "--shutdown-timeout") == 0);
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
      {"new", {"--global-batch=1"}, 2, "--global-batch 1 has no sequence for each of 2 workers"},
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
