// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/preload/memory_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/support/process.hpp"

using namespace ddp::launcher;
using namespace ddp::testing;

namespace {

// Returns the file's path for other processes.
std::string path_of(const Descriptor& file) {
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file.get());
}

}  // namespace

TEST_CASE("memory file: is read from the beginning of its content, and is close-on-exec", "[launcher][unit]") {
  const std::string content = std::string("a\0b\n", 4) + std::string(1'000'000, 'x');
  const Descriptor file = memory_file("content", content);
  std::string read_back(content.size() + 1, '\0');
  CHECK(read(file.get(), read_back.data(), read_back.size()) == static_cast<ssize_t>(content.size()));
  read_back.pop_back();
  CHECK(read_back == content);
  CHECK((fcntl(file.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(read_file(path_of(memory_file("empty", ""))).empty());
}
