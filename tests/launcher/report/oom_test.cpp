// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/report/oom.hpp"

#include <catch2/catch.hpp>

using namespace ddp::launcher;

TEST_CASE("out of memory: a counter is the number after exactly its name", "[launcher][unit]") {
  CHECK(counter_in("low 0\noom 3\noom_kill 2\noom_group_kill 1\n", "oom_kill") == 2);
  CHECK(counter_in("oom_kill_disable 0\nunder_oom 0\noom_kill 5", "oom_kill") == 5);
  CHECK_FALSE(counter_in("oom_kill_disable 0\nunder_oom 0\n", "oom_kill"));
  CHECK_FALSE(counter_in("oom_kill x\n", "oom_kill"));
  CHECK_FALSE(counter_in("", "oom_kill"));
}

TEST_CASE("out of memory: each kill that was counted explains one death", "[launcher][unit][P17]") {
  std::optional<std::int64_t> explained = 3;
  CHECK_FALSE(explain_one(3, explained));
  CHECK(explain_one(5, explained));
  CHECK(explain_one(5, explained));
  CHECK_FALSE(explain_one(5, explained));
  std::optional<std::int64_t> unknown;
  CHECK_FALSE(explain_one(5, unknown));
  CHECK_FALSE(explain_one(std::nullopt, explained));
}

TEST_CASE("out of memory: the kernel's log names a process by its whole pid", "[launcher][unit]") {
  const std::string record = "3,712,5000000,-;Memory cgroup out of memory: Killed process 4242 (python3) total-vm:1kB";
  CHECK(names_as_killed(record, 4242, 5'000'000));
  CHECK_FALSE(names_as_killed(record, 424, 0));
  CHECK_FALSE(names_as_killed(record, 242, 0));
  CHECK(names_as_killed("3,1,2,-;Killed process 7, UID 0, (x) total-vm:1kB", 7, 0));  // before Linux 5.3
  CHECK_FALSE(names_as_killed("3,1,2,-;oom_reaper: reaped process 4242 (python3)", 4242, 0));
  CHECK_FALSE(names_as_killed("Killed process 4242 (no record)", 4242, 0));
  CHECK_FALSE(names_as_killed(record, 4242, 9'000'000));  // an earlier process with this pid
}

TEST_CASE("out of memory: the cgroup is found in both hierarchies, on the host and in a container",
          "[launcher][unit]") {
  const std::string v2 = "30 20 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";
  const std::string v1 = "31 20 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" + v2;
  CHECK(memory_cgroup("0::/jobs/7\n", v2) == "/sys/fs/cgroup/jobs/7");
  CHECK(memory_cgroup("0::/\n", v2) == "/sys/fs/cgroup");
  CHECK(memory_cgroup("9:name=systemd:/a\n4:cpu,memory:/jobs/7\n0::/b\n", v1) == "/sys/fs/cgroup/memory/jobs/7");
  const std::string container = "31 20 0:32 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
  CHECK(memory_cgroup("4:memory:/docker/ab\n", container) == "/sys/fs/cgroup/memory");
  CHECK(memory_cgroup("4:memory:/docker/ab/c\n", container) == "/sys/fs/cgroup/memory/c");
  CHECK(memory_cgroup("0::/x\n", "").empty());
  CHECK(memory_cgroup("", v2).empty());
}
