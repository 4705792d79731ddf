// SPDX-License-Identifier: BSD-3-Clause
// Workers that have fewer rights than ddprun, as where a container's root starts them through setpriv or gosu.
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "tests/integration/ddprun.hpp"

using namespace ddp::testing;

TEST_CASE("lesser workers: ddprun runs no py-spy that lies beside the program of another user's worker",
          "[attacks][integration]") {
  if (geteuid() != 0) skip("only root can start workers of another user");
  const bool is_lesser = GENERATE(true, false);
  const bool is_asked = GENERATE(true, false);
  const TemporaryFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  // "/python" in its name makes it a Python for ddprun. /proc/PID of a process whose program the user may not read
  // belongs to root.
  const std::string python = folder / "python", ran = folder / "ran";
  std::filesystem::copy_file(FAKE_WORKER_BINARY, python);
  std::filesystem::permissions(python, std::filesystem::perms(0711));
  write_file(folder / "py-spy", "#!/bin/sh\ntouch " + ran + "\n", true);
  Words words = {"--nproc-per-node=2", "--no-python"};
  if (is_lesser) words = words + Words{"setpriv", "--reuid=65534", "--clear-groups"};
  Process job(ddprun_raw(words + Words{python, "note=USR1", "say=up", "until=USR1", "0:exit=5", "wait"}));
  job.wait_for("up", 2);
  if (is_asked) {
    const Result shown = run(ddprun_raw({"stacks", std::to_string(job.pid())}));
    INFO(shown.out << shown.err);
    CHECK(shown.code == 0);
    CHECK(count(shown.out, "rank") > 0);
    CHECK(std::filesystem::exists(ran) == !is_lesser);
    job.signal(SIGTERM);
    job.wait();
  } else {
    tell_workers(job);
    const Result failed = job.wait();
    CAPTURE(failed.err);
    CHECK(failed.code == 5);
    CHECK(std::filesystem::exists(ran) == !is_lesser);
  }
  CHECK(job.all_gone());
}
