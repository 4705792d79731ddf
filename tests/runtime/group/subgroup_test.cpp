// SPDX-License-Identifier: BSD-3-Clause
// Groups of some of the ranks, with real processes. group_scenarios.cpp is what each rank does and checks by itself.
#include <catch2/catch.hpp>
#include <string>

#include "tests/runtime/job/run_job.hpp"

using Catch::Matchers::Contains;
using ddp::test::Others;
using ddp::test::run;
using ddp::test::run_with_a_death;

TEST_CASE("groups: they have any ranks, are named or not, and run their own operations", "[runtime][integration]") {
  const std::vector<std::string> outputs = run(4, "new groups");
  for (const std::string& output : outputs) CHECK_THAT(output, Contains("no such rank failed: 1 ranks "));
  CHECK_THAT(outputs[3], Contains("a group of others failed: 1 the group is null"));
}

TEST_CASE("groups: a split makes one for each color, in the order of keys, and splits subgroups too",
          "[runtime][integration]") {
  run(4, "split");
}

TEST_CASE("groups: operations in flight in two of them end, in whatever order the ranks issue them",
          "[runtime][integration]") {
  run(2, "crossed");
}

TEST_CASE("groups: wrong arguments are refused with a reason and leave other groups alive", "[runtime][integration]") {
  for (const std::string& output : run(2, "group mistakes")) {
    CHECK_THAT(output, Contains("twice failed: 1 new_group: rank 1 is given twice"));
    CHECK_THAT(output, Contains("too high failed: 1 new_group: there is no rank 2 in a job of 2"));
    CHECK_THAT(output, Contains("negative failed: 1 new_group: there is no rank -1 in a job of 2"));
    CHECK_THAT(output, Contains("slash failed: 1 new_group: the group name \"a/b\" must not contain a slash"));
    CHECK_THAT(output, Contains("the world's name failed: 1 new_group: the name \"world\" has been given"));
    CHECK_THAT(output, Contains("name again failed: 1 new_group: the name \"mine\" has been given to a group already"));
    CHECK_THAT(output, Contains("end of the world failed: 1 the world cannot be destroyed"));
    CHECK_THAT(output,
               Contains("a group that is gone failed: 1 there is no such group in this process: it was destroyed"));
    CHECK_THAT(output, Contains("backend failed: 6 backend \"nosuch\": no libddp_nosuch.so in "));
  }
}

TEST_CASE("groups: destroying one waits for its operations in flight", "[runtime][integration]") {
  run(2, "destroy groups");
}

TEST_CASE("groups: a member that does not come in time is named, and gets an error when it comes",
          "[runtime][integration]") {
  const std::vector<std::string> outputs = run(3, "late", {{"TEST_INIT_TIMEOUT", "1500"}});
  for (const std::string& output : outputs) {
    CHECK_THAT(output, Contains("three failed: 2 ranks 0-2: connecting rank ") &&
                           Contains("not done in 1.5 s, rank 2 never joined (does every member make this group?)"));
  }
}

TEST_CASE("groups: members that list different ranks under one name all learn it at once", "[runtime][integration]") {
  for (const std::string& output : run(3, "disagree")) {
    CHECK_THAT(output, Contains("eval failed: 5 eval: connecting rank ") &&
                           Contains("ranks disagree: the first member to come lists ") && Contains(" 0,2") &&
                           Contains(" 1,2"));
  }
}

TEST_CASE("groups: members that ask for different backends all learn it", "[runtime][integration]") {
  for (const std::string& output : run(2, "other backends")) {
    for (const char* attempt :
         {"group failed: 5 eval: connecting rank ", "session failed: 5 world: connecting rank "}) {
      CHECK_THAT(output, Contains(attempt) && Contains("ranks disagree: the first member to come lists 0,1 over ") &&
                             Contains("0,1 over ddp") && Contains("0,1 over gloo"));
    }
  }
}

TEST_CASE("groups: the default one is the world of the first session that lives", "[runtime][integration]") {
  const int size = GENERATE(1, 2);
  for (const std::string& output : run(size, "default session")) {
    const std::string none = "failed: 1 there is no default process group: call ddp::init_process_group first";
    for (const char* function : {"get_rank ", "get_world_size ", "get_backend "}) {
      CHECK_THAT(output, Contains(function + none));
    }
  }
}

TEST_CASE("groups: a member that dies ends the forming at once, and the others can form another",
          "[runtime][integration][P23]") {
  for (const auto& [rank, said] : run_with_a_death(3, "lose member", {2, "ready", Others::Waiting})) {
    INFO("rank " << rank << " said: " << said);
    for (const char* attempt : {"forming failed: 3 ", "forming again failed: 3 "}) {
      CHECK_THAT(said, Contains(attempt + std::string("ranks 0-2")));
    }
    CHECK_THAT(said, Contains("to the others: rank 2 on node b was killed by SIGKILL\n"));
  }
}

TEST_CASE("groups: a dead rank fails those that have it, wherever they wait, and no others",
          "[runtime][integration][P23]") {
  const std::string cause = "rank 3 on node b was killed by SIGKILL\n";
  const std::string expected[] = {"world failed: 3 world: recv from rank 1 (4 B, tag 0): " + cause,
                                  "world failed: 3 world: barrier #2: " + cause,
                                  "half failed: 3 ranks 2, 3: barrier #1: " + cause};
  for (const auto& [rank, said] : run_with_a_death(4, "lose rank 3", {3, "ready", Others::Waiting})) {
    INFO("rank " << rank << " said: " << said);
    CHECK_THAT(said, Contains(expected[rank]));
  }
}
