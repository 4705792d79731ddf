// SPDX-License-Identifier: BSD-3-Clause
// ddprun --keep-memory: jobs that are killed at every place of a step end with the bits of an undisturbed run, and what
// they kept goes with them. DDPRUN_KEPT_KILLS says how many deaths (scripts/stress/kept_memory).
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tests/integration/ddprun.hpp"
#include "tests/integration/kept/jobs.hpp"
#include "tests/support/sanitizer.hpp"

using Catch::Matchers::Contains;
using namespace ddp::testing;

namespace {

// Returns the number after each `text`.
std::vector<long> numbers_after(const std::string& text, const std::string& in) {
  std::vector<long> numbers;
  for (std::size_t at = 0; (at = in.find(text, at)) != std::string::npos;) {
    at += text.size();
    numbers.push_back(std::atol(in.c_str() + at));
  }
  return numbers;
}

// Returns the largest of what the four ranks of a round have said.
long largest(std::vector<long>::const_iterator first) { return *std::max_element(first, first + 4); }

// Returns the number of the file behind each descriptor of a process that is memory to keep.
std::vector<ino_t> kept_files_of(pid_t pid) {
  std::vector<ino_t> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    struct stat facts = {};
    if (target.find("memfd:ddprun_kept") == std::string::npos || stat(entry.path().c_str(), &facts) != 0) continue;
    files.push_back(facts.st_ino);
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

}  // namespace

TEST_CASE("kept memory: a rank that dies at any place of a step costs no bit", "[apps][integration]") {
  const std::string by = GENERATE("c", "adamw"), backend = by == "adamw" ? "ddp" : GENERATE("ddp", "gloo");
  const Words verbs = {"steps=6", "by=" + by, "backend=" + backend};
  const Words expected = undisturbed(2, verbs);
  for (int place = 0; place < 7; ++place) {
    if (by == "adamw" && place > 0 && place < 4) continue;  // the optimizer has no places within
    CAPTURE(by, backend, place);
    const Result result = check_restarts_all(job_of(2, verbs + Words{"die=1:3:" + std::to_string(place)}), expected);
    CAPTURE(result.err);
    CHECK(count(result.err, "every rank ") == 1);
  }
}

TEST_CASE("kept memory: where ranks differ, the torn one takes the tensors of one that is through",
          "[apps][integration]") {
  const std::string backend = GENERATE("ddp", "gloo");
  const Words verbs = {"steps=6", "backend=" + backend};
  const Words expected = undisturbed(3, verbs);
  struct Case {
    Words deaths;
    std::string says;
  };
  const std::vector<Case> cases = {
      {{"die=0:4:2", "die=1:4:4", "die=2:4:4"},
       "every rank does step 4 again, whose update is complete; the tensors of"},
      {{"die=0:4:2", "die=1:4:0", "die=2:4:2"}, "every rank goes on after step 3, since rank 1 had not begun the next"},
      {{"die=0:4:2", "die=1:4:2", "die=2:4:2"}, "not used, so that the program starts from its checkpoint: every rank"},
  };
  for (const Case& one : cases) {
    Process job(job_of(3, verbs + one.deaths));
    const Result result = finish(job);
    CAPTURE(result.err, result.out);
    CHECK(result.code == 0);
    CHECK(ends_of(result.out) == expected);
    // Ranks that are to die where others die first may be stopped before: then another line is right, too.
    CHECK_THAT(result.err, Contains(one.says) || Contains("every rank goes on after step"));
    CHECK_THAT(result.err, Contains("ms since the first failure"));
  }
}

TEST_CASE("kept memory: where all were killed within one update, the shadow has the step before",
          "[apps][integration]") {
  const std::string backend = GENERATE("ddp", "gloo");
  const int workers = GENERATE(1, 3);
  const Words verbs = {"steps=6", "backend=" + backend, "numbers=1001"};
  const Words expected = undisturbed(workers, verbs);
  Words deaths = {"together=1"};
  for (int rank = 0; rank < workers; ++rank) deaths.push_back("die=" + std::to_string(rank) + ":4:2");
  Process with(job_of(workers, verbs + deaths, {"--keep-memory=shadow", "--max-restarts=100"}));
  const Result result = finish(with);
  CAPTURE(backend, workers, result.err, result.out);
  CHECK(result.code == 0);
  CHECK(ends_of(result.out) == expected);
  CHECK(count(result.err, "every rank goes on after step 3: every rank was within update 4") == 1);
  CHECK(count(result.out, "goes on after step 3, with tensors put together from the shadow") == workers);

  Process without(job_of(workers, verbs + deaths));
  const Result lost = finish(without);
  CAPTURE(lost.err, lost.out);
  CHECK(lost.code == 0);
  CHECK(ends_of(lost.out) == expected);  // from the start
  CHECK(count(lost.err, "not used, so that the program starts from its checkpoint: every rank was within update 4") ==
        1);
  CHECK_THAT(lost.err, Contains("--keep-memory=shadow would have a copy"));
}

TEST_CASE("kept memory: with a shadow, all ranks may die within an update again and again", "[apps][integration]") {
  const int deaths = deaths_asked_for();
  const unsigned seed = std::random_device()();
  const std::string backend = GENERATE("ddp", "gloo");
  CAPTURE(seed, backend);
  const Words verbs = {"steps=" + std::to_string(deaths * 4 + 10), "backend=" + backend, "numbers=20000"};
  const Words expected = undisturbed(4, verbs);
  Process::Options patient;
  patient.deadline = kDeadline + std::chrono::seconds(deaths);
  Process job(
      job_of(4,
             verbs + Words{"together=1", "deaths=" + std::to_string(deaths), "seed=" + std::to_string(seed % 100'000)},
             {"--keep-memory=shadow", "--max-restarts=100000"}),
      patient);
  const Result result = finish(job);
  CAPTURE(result.err, result.out);
  CHECK(result.code == 0);
  CHECK(ends_of(result.out) == expected);
  CHECK(count(result.err, "put together from the shadow") == deaths);
  // The step before the update in which all died is the one that they go on after: it only grows.
  const std::vector<long> steps = numbers_after("every rank goes on after step ", result.err);
  CHECK(std::is_sorted(steps.begin(), steps.end()));
}

TEST_CASE("kept memory: a job that dies again and again ends with the same bits, and keeps no more",
          "[apps][integration]") {
  const int deaths = deaths_asked_for();
  const unsigned seed = std::random_device()();
  CAPTURE(seed);
  const std::string by = GENERATE("c", "adamw"), backend = GENERATE("ddp", "gloo");
  const std::string option = backend == "gloo" && by == "c" ? "--keep-memory=shadow" : "--keep-memory";
  CAPTURE(by, backend);
  const Words verbs = {"steps=" + std::to_string(deaths * 2 + 10), "by=" + by, "backend=" + backend, "numbers=20000"};
  const Words expected = undisturbed(4, verbs);
  Process::Options patient;
  patient.deadline = kDeadline + std::chrono::seconds(deaths);
  Process job(job_of(4, verbs + Words{"deaths=" + std::to_string(deaths), "seed=" + std::to_string(seed % 100'000)},
                     {option, "--max-restarts=100000"}),
              patient);
  const Result result = finish(job);
  CAPTURE(result.err, result.out);
  CHECK(result.code == 0);
  CHECK(ends_of(result.out) == expected);
  CHECK(count(result.err, "kept memory \"") >= 5);
  // What the agent has in the second round, and in the last.
  const std::vector<long> files = numbers_after("the agent has ", result.out);
  const std::vector<long> pages = numbers_after("files and ", result.out);
  REQUIRE(files.size() > 8);
  REQUIRE(pages.size() == files.size());
  CHECK(largest(files.end() - 4) <= largest(files.begin() + 4) + 4);  // a visitor or two, while it is counted
  // A sanitizer needs memory of its own, and keeps freed memory for a while.
  if (!kIsSanitized) CHECK(largest(pages.end() - 4) <= largest(pages.begin() + 4) + 256);  // 1 MiB
}

TEST_CASE("kept memory: it is the agent's, and freed with the job, also if every process is killed",
          "[apps][integration]") {
  const bool all = GENERATE(false, true);
  Process job(job_of(2, {"steps=1000000000"}));
  job.wait_for("kept from now on", 2);
  const pid_t agent = agent_of(job), keeper = keeper_of(job);
  const std::vector<ino_t> kept = kept_files_of(agent);
  CHECK(kept.size() == 2);
  std::vector<pid_t> victims = {job.pid(), keeper, agent};
  for (const pid_t worker : children_of(agent)) victims.push_back(worker);
  if (all) {
    kill_at_once(victims);
  } else {
    job.signal(SIGTERM);
  }
  job.wait();
  CHECK(job.all_gone());
  for (const auto& process : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(process.path().filename().c_str());
    if (pid <= 0) continue;
    for (const ino_t file : kept_files_of(pid)) CHECK(std::count(kept.begin(), kept.end(), file) == 0);
  }
}

TEST_CASE("kept memory: a job that is never restarted says that the option is of no use", "[apps][integration]") {
  const Result result = run(job_of(1, {"steps=1"}, {"--keep-memory"}));
  CHECK(result.code == 0);
  CHECK(count(result.err, "--keep-memory is of use only with --max-restarts") == 1);
}

TEST_CASE("kept memory: without the option the program runs as before, and keeps nothing", "[apps][integration]") {
  const Result result = run(job_of(2, {"steps=3", "die=1:2:5"}, {"--max-restarts=1"}));
  CHECK(result.code == 0);
  CHECK_THAT(result.out, Contains("memory is not kept (ddprun --keep-memory)"));
  CHECK_THAT(result.err, !Contains("kept memory"));
  CHECK(ends_of(result.out) == undisturbed(2, {"steps=3"}));
}
