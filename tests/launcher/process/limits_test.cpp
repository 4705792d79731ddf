// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/process/limits.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "rendezvous/base/error.hpp"

using namespace ddp::launcher;

namespace {

// Returns the size of the kernel's table of this process's descriptors.
int size_of_table() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (int size = 0; word == "FDSize:" && status >> size) return size;
  }
  return 0;
}

auto open_files() { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); }

}  // namespace

TEST_CASE("limits: the file table is enlarged in advance, and no file stays open", "[launcher][unit]") {
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  const auto open = open_files();
  raise_limits();
  reserve_files(200, 800, 0);
  CHECK(size_of_table() >= 1024);
  reserve_files(200, 1200, 0);
  CHECK(size_of_table() >= 1400);
  reserve_files(200, 1200, 2000);
  CHECK(size_of_table() >= 3400);
  CHECK(open_files() == open);

  const rlimit few = {1024, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  CHECK_THROWS_AS(reserve_files(200, 800, 0), ddp::rendezvous::Error);
  setrlimit(RLIMIT_NOFILE, &before);
}
