// SPDX-License-Identifier: BSD-3-Clause
// When a round begins, and what nodes hear that wait for it.
#include "rendezvous/coordinator/core/gathering.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/rendezvous/coordinator/obedient_nodes.hpp"

using namespace ddp::rendezvous;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("coordinator: an elastic job starts after the last call, a full one at once", "[rendezvous][unit]") {
  Job job(elastic(1, 3));
  job.join("a");
  job.pass(seconds(9));
  CHECK(job.core.round() == 0);
  job.join("b");
  job.pass(seconds(1));
  CHECK(job.core.round() == 1);
  job.start();
  CHECK(job.runs("a", 0));
  CHECK(job.runs("b", 1));

  Job full(elastic(1, 2));
  full.join("b");
  full.join("a");
  full.start();
  CHECK(full.runs("a", 0));  // the coordinator's node, whichever node came first
}

TEST_CASE("coordinator: while no node comes, nodes that wait hear it less and less often", "[rendezvous][unit]") {
  Job job(with_ranks(3), seconds(600));
  job.join("a", 0);
  std::vector<int> told_at;
  std::string last;
  for (int second = 1; second <= 590; ++second) {
    job.pass(seconds(1));
    if (std::exchange(last, job.told("a").reason) != last) told_at.push_back(second);
  }
  CHECK(told_at.size() == 15);
  CHECK(told_at.back() - told_at[told_at.size() - 2] == 60);
  job.join("b", 2);
  job.pass(seconds(5));
  CHECK_THAT(job.told("a").reason, Catch::StartsWith("waiting for nodes: 2 of 3 there"));
}

TEST_CASE("coordinator: nodes that wait learn which nodes are missing, every 5 s at first", "[rendezvous][unit]") {
  Job job(with_ranks(3));
  job.join("a", 0);
  CHECK(job.told("a").reason.empty());
  job.join("b", 2);
  job.pass(seconds(2));
  CHECK(job.told("a").reason ==
        "waiting for nodes: 2 of 3 there (a (10.0.0.a), b (10.0.0.b)); missing: node rank 1; 2 s of 60 s");
  job.nodes["b"].told.reason = "";
  job.pass(milliseconds(4500));
  CHECK(job.told("b").reason.empty());
  job.pass(milliseconds(500));
  CHECK_FALSE(job.told("b").reason.empty());
  job.pass(seconds(60));
  CHECK(job.leaves("b", 75));
  CHECK(job.told("b").why == Why::NodesMissing);
  Job alone(with_ranks(3));
  alone.join("a", 0);
  alone.pass(seconds(2));
  CHECK_THAT(alone.told("a").reason, Catch::EndsWith("; missing: node ranks 1, 2; 2 s of 60 s"));
}
