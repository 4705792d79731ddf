// SPDX-License-Identifier: BSD-3-Clause
// Jobs of tests/fixtures/kept_worker.cpp on one host. DDPRUN_KEPT_KILLS says how many deaths those have that die again
// and again (scripts/stress/kept_memory).
#pragma once

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "tests/integration/kept/worker_ends.hpp"

namespace ddp::testing {

// Returns how many deaths a test with many is to have.
inline int deaths_asked_for() {
  const char* given = std::getenv("DDPRUN_KEPT_KILLS");
  return given != nullptr ? std::atoi(given) : 25;
}

// Returns the command of a job with these arguments of kept_worker.
inline Words job_of(int workers, const Words& verbs,
                    const Words& options = {"--keep-memory", "--max-restarts=100000"}) {
  Words words = {DDPRUN_BINARY, "--nproc-per-node=" + std::to_string(workers), "--rdzv-id=kept"};
  words = words + options;
  words.emplace_back(KEPT_WORKER_BINARY);
  return words + verbs;
}

// Returns what the ranks of a job have at the end in which none dies.
inline Words undisturbed(int workers, const Words& verbs) {
  const Result result = run(job_of(workers, verbs, {}));
  REQUIRE(result.code == 0);
  const Words ends = ends_of(result.out);
  REQUIRE(ends.size() == static_cast<std::size_t>(workers));
  return ends;
}

// Runs the job to its end and returns it.
inline Result finish(Process& job) {
  Result result = job.wait();
  CHECK(job.all_gone());
  return result;
}

// Runs a job in which a worker dies, and checks that it restarts all workers once and ends as expected. Returns what it
// has said.
inline Result check_restarts_all(const Words& command, const Words& expected) {
  Process job(command);
  Result result = finish(job);
  CAPTURE(result.err, result.out);
  CHECK(result.code == 0);
  CHECK(ends_of(result.out) == expected);
  CHECK(count(result.err, "restart 1 of") == 1);
  return result;
}

}  // namespace ddp::testing
