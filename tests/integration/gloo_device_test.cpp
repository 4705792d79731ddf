// SPDX-License-Identifier: BSD-3-Clause
// Gloo's own calls to certain libc functions arrive in collectives/gloo/device.cpp. Only the
// dynamic linker can show this.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/integration/ddprun.hpp"
#include "tests/runtime/job/run_job.hpp"

using namespace ddp::testing;

TEST_CASE("gloo device: Gloo calls the backend's functions, and those libc's", "[collectives][integration]") {
  const std::string name = GENERATE("pthread_mutex_trylock", "epoll_ctl");
  const TemporaryFolder folder;
  const std::string said = folder.path() + "/linker";
  Process job(ddprun_raw({"--nproc_per_node", "2", "--no-python", "env", "LD_DEBUG=bindings", "LD_DEBUG_OUTPUT=" + said,
                          "TEST_BACKEND=gloo", COLLECTIVE_WORKER, "who"}));
  const Result result = job.wait();
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(job.all_gone());
  int asked = 0;
  int passed_on = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    std::ifstream lines(file.path());
    for (std::string line; std::getline(lines, line);) {
      if (line.find("`" + name + "'") == std::string::npos) continue;
      const std::size_t to = line.find(" to ");
      const std::string who = line.substr(0, to);
      const std::string whose = line.substr(to);
      if (count(who, "/libgloo.so") == 1 && count(whose, "/libddp_gloo.so") == 1) ++asked;
      if (count(who, "/libddp_gloo.so") == 1 && count(whose, "/libc.so") == 1) ++passed_on;
    }
  }
  CHECK(asked == 2);  // once in each rank
  CHECK(passed_on == 2);
}

TEST_CASE("gloo device: a group is left at once", "[collectives][integration]") { ddp::test::run(4, "leave"); }
