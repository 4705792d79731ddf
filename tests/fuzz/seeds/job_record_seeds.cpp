// SPDX-License-Identifier: BSD-3-Clause
// Writes job_record_fuzzer's first inputs: a record without anything, and one with everything.
// usage: job_record_seeds CORPUS_FOLDER
#include "rendezvous/coordinator/core/job_record.hpp"
#include "tests/fuzz/seeds/seeds.hpp"

int main(int argc, char** argv) {
  using namespace ddp::rendezvous;
  if (argc != 2) return 2;
  ddp::fuzz::Seeds seeds(argv[1]);
  JobRecord record;
  seeds.write(encode(record));
  const WorkerFailure failure{.rank = 1, .host = "b", .status = {.code = 7}};
  record.instance = "i";
  record.node = record.own = "A";
  record.host = "a";
  record.phase = 3;
  record.round = 2;
  record.cause = failure;
  record.gathers_since = JobRecord::Age(5);
  record.run = record.exit = Directive{};
  record.stop.reason = "rank 1 failed";
  record.stop.dead = {1};
  record.failures = {{"B", "b", JobRecord::Age(1), failure}};
  record.losses = {{JobRecord::Age(2), "lost", "", 0, "b"}};
  record.spent = {JobRecord::Age(3)};
  record.first_causes = {{"b", 1}};
  record.before = JobRecord::Before{"h", Directive{}};
  record.members = {{.incarnation = "A", .host = "a", .addresses = {"10.0.0.1"}, .slots = 1}, {.host = "b"}};
  seeds.write(encode(record));
  return 0;
}
