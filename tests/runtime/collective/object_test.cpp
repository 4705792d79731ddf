// SPDX-License-Identifier: BSD-3-Clause
// Collectives on objects, with real processes. Each rank checks what it receives, in object_worker.cpp.
#include <catch2/catch.hpp>
#include <string>

#include "tests/support/process.hpp"

using namespace ddp::testing;

namespace {

void exchange(const std::string& ranks, const std::string& scenario) {
  INFO(ranks << " ranks");
  Process job({DDPRUN_BINARY, "--nproc-per-node", ranks, OBJECT_WORKER, scenario});
  const Result result = job.wait();
  CHECK(result.out.empty());
  CHECK(result.err.empty());
  CHECK(result.code == 0);
  CHECK(job.left_over().empty());
}

}  // namespace

TEST_CASE("objects: every collective delivers objects of any sizes from any root", "[runtime][integration]") {
  for (const char* ranks : {"1", "2", "3", "4"}) exchange(ranks, "all sizes");
}

TEST_CASE("objects: more than a hundred megabytes arrive whole", "[runtime][integration]") {
  for (const char* ranks : {"1", "2"}) exchange(ranks, "large");
}

TEST_CASE("objects: they are made from any container of bytes", "[runtime][integration]") {
  for (const char* ranks : {"1", "2"}) exchange(ranks, "containers");
}

TEST_CASE("objects: each exchange is one operation, in its turn among the others", "[runtime][integration]") {
  for (const char* ranks : {"1", "3"}) exchange(ranks, "in order");
}

TEST_CASE("objects: wrong arguments are refused and leave the group alive", "[runtime][integration]") {
  for (const char* ranks : {"1", "2"}) exchange(ranks, "mistakes");
}
