// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/machine/memory_left.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "tests/support/process.hpp"

using namespace ddp::rendezvous;

TEST_CASE("memory left: the tightest control group of version 2 counts, less what its cached files hold",
          "[rendezvous][unit]") {
  const ddp::testing::TemporaryFolder folder;
  const std::filesystem::path at = folder.path();
  folder.write("self", "0::/a/b\n");
  folder.write("sys/a/b/memory.max", "100000\n");
  folder.write("sys/a/b/memory.current", "5000\n");
  folder.write("sys/memory.max", "max\n");
  folder.write("sys/a/memory.max", "1000\n");
  folder.write("sys/a/memory.current", "900\n");
  folder.write("sys/a/memory.stat", "anon 100\ninactive_file 300\nactive_file 50\n");
  const auto left = least_memory_left(at / "self", at / "sys");
  REQUIRE(left);
  CHECK(left->group == "/a");
  CHECK(left->limit == 1000);
  CHECK(left->bytes == 450);
}

TEST_CASE("memory left: version 1 is understood, and no limit is no answer", "[rendezvous][unit]") {
  const ddp::testing::TemporaryFolder folder;
  const std::filesystem::path at = folder.path();
  folder.write("self", "4:cpu,cpuacct:/x\n7:memory:/x\n0::/\n");
  folder.write("sys/memory/x/memory.limit_in_bytes", "4096\n");
  folder.write("sys/memory/x/memory.usage_in_bytes", "96\n");
  folder.write("sys/memory/memory.limit_in_bytes", "9223372036854771712\n");
  folder.write("sys/memory/memory.usage_in_bytes", "96\n");
  REQUIRE(least_memory_left(at / "self", at / "sys"));
  CHECK(least_memory_left(at / "self", at / "sys")->bytes == 4000);
  CHECK_FALSE(least_memory_left(at / "none", at / "sys"));
}
