// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/preload/memory_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/support/hosts.hpp"
#include "tests/support/process.hpp"

using namespace ddp::launcher;
using namespace ddp::testing;

namespace {

// As other processes see it.
std::string path_of(const Descriptor& file) {
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file.get());
}

}  // namespace

TEST_CASE("memory file: it has its content, is read from its beginning, and is closed in what is executed",
          "[launcher][unit]") {
  const std::string content = std::string("a\0b\n", 4) + std::string(1'000'000, 'x');
  const Descriptor file = memory_file("content", content);
  std::string read_back(content.size() + 1, '\0');
  CHECK(read(file.get(), read_back.data(), read_back.size()) == static_cast<ssize_t>(content.size()));
  read_back.pop_back();
  CHECK(read_back == content);
  CHECK((fcntl(file.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(read_file(path_of(memory_file("empty", ""))).empty());
}

TEST_CASE("memory zip: Python's zipfile finds the file, its checksum and its content", "[launcher][unit]") {
  if (run({"sh", "-c", "command -v python3"}).code != 0) skip("there is no python3");
  const std::string content = "said = 'caf\xC3\xA9'\n" + std::string(70'000, '#');
  const Descriptor file = memory_zip("archive", "module.py", content);
  const Result result = run({"python3", "-c",
                             "import sys, zipfile\n"
                             "archive = zipfile.ZipFile(sys.argv[1])\n"
                             "print(archive.testzip(), archive.namelist(), len(archive.read('module.py')))\n"
                             "sys.path.insert(0, sys.argv[1])\n"
                             "import module\n"
                             "print(ascii(module.said))\n",
                             path_of(file)});
  CHECK(result.err.empty());
  CHECK(result.out == "None ['module.py'] " + std::to_string(content.size()) + "\n'caf\\xe9'\n");
}
