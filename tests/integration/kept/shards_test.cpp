// SPDX-License-Identifier: BSD-3-Clause
// ddprun --keep-memory for jobs whose ranks have tensors that no other rank has: shards of the parameters, or parts of
// ZeroRedundancyOptimizer's state. Killed at every place of a step, they end with the bits of an undisturbed run.
#include <catch2/catch.hpp>
#include <random>
#include <string>

#include "tests/integration/kept/jobs.hpp"

using Catch::Matchers::Contains;
using namespace ddp::testing;

namespace {

const Words kShadow = {"--keep-memory=shadow", "--max-restarts=100000"};

}  // namespace

TEST_CASE("kept shards: with a shadow, a rank that dies at any place of a step costs no bit", "[apps][integration]") {
  const std::string by = GENERATE("shards", "zero"), backend = by == "zero" ? "ddp" : GENERATE("ddp", "gloo");
  const Words verbs = {"steps=6", "by=" + by, "backend=" + backend, "numbers=1002"};
  const Words expected = undisturbed(3, verbs);
  for (int place = 0; place < 7; ++place) {
    CAPTURE(by, backend, place);
    const Result result =
        check_restarts_all(job_of(3, verbs + Words{"die=1:3:" + std::to_string(place)}, kShadow), expected);
    CAPTURE(result.err);
    CHECK(count(result.err, "every rank ") == 1);
    if (place > 0 && place < 4) CHECK(count(result.err, "every rank goes on after step 2; tensors that no other") == 1);
  }
}

TEST_CASE("kept shards: without a shadow, a rank that dies within its update sends all to the checkpoint",
          "[apps][integration]") {
  const std::string by = GENERATE("shards", "zero");
  const Words verbs = {"steps=6", "by=" + by, "numbers=1002"};
  const Words expected = undisturbed(2, verbs);
  Process torn(job_of(2, verbs + Words{"die=1:3:2"}));
  const Result lost = finish(torn);
  CAPTURE(by, lost.err, lost.out);
  CHECK(lost.code == 0);
  CHECK(ends_of(lost.out) == expected);                                               // from the start
  CHECK(count(lost.err, "(ddprun --keep-memory=shadow keeps a copy of them)") == 2);  // in each round, from one rank
  CHECK_THAT(lost.err, Contains("not used, so that the program starts from its checkpoint: rank ") &&
                           Contains("was within update 3, and no other rank has its own tensors "
                                    "(--keep-memory=shadow would have a copy)"));

  Process whole(job_of(2, verbs + Words{"together=1", "die=0:3:6", "die=1:3:6"}));
  const Result result = finish(whole);
  CAPTURE(result.err, result.out);
  CHECK(result.code == 0);
  CHECK(ends_of(result.out) == expected);
  CHECK(count(result.err, "every rank goes on after step 3") == 1);
}

TEST_CASE("kept shards: a job that dies again and again ends with the same bits", "[apps][integration]") {
  const int deaths = deaths_asked_for();
  const unsigned seed = std::random_device()();
  const std::string by = GENERATE("shards", "zero"), together = GENERATE("0", "1");
  const std::string backend = by == "shards" && together == "0" ? "gloo" : "ddp";
  CAPTURE(seed, by, together);
  const Words verbs = {"steps=" + std::to_string(deaths * 5 + 10), "by=" + by, "backend=" + backend, "numbers=20000"};
  const Words expected = undisturbed(4, verbs);
  Process::Options patient;
  patient.deadline = kDeadline + std::chrono::seconds(2 * deaths);
  const Words dies = {"deaths=" + std::to_string(deaths), "seed=" + std::to_string(seed % 100'000),
                      "together=" + together};
  Process job(job_of(4, verbs + dies, kShadow), patient);
  const Result result = finish(job);
  CAPTURE(result.err, result.out);
  CHECK(result.code == 0);
  CHECK(ends_of(result.out) == expected);
  CHECK(count(result.err, "every rank ") == deaths);  // each time it went on
  CHECK(count(result.err, "its checkpoint") == 0);
}
