// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/base/new_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>

#include "tests/support/process.hpp"

using namespace ddp::rendezvous;
using ddp::testing::read_file;
using ddp::testing::TemporaryFolder;
namespace fs = std::filesystem;

TEST_CASE("new file: no two temporary names are the same, and they lie beside the path", "[rendezvous][unit]") {
  const std::string name = temporary_name("/a/b");
  CHECK(name.substr(0, 9) == "/a/b.tmp.");
  CHECK(name.size() == 9 + 16);
  CHECK(temporary_name("/a/b") != name);
}

TEST_CASE("new file: what is there is neither opened nor followed", "[rendezvous][unit]") {
  const TemporaryFolder folder;
  const std::string there = folder.write("there", "precious");
  fs::create_symlink(there, folder / "link");
  fs::create_symlink(folder / "nothing", folder / "dangling");
  for (const std::string& path : {there, folder / "link", folder / "dangling"}) {
    INFO(path);
    CHECK_FALSE(create_file(path.c_str(), 0600));
    CHECK(errno == EEXIST);
  }
  CHECK(read_file(there) == "precious");
  CHECK_FALSE(fs::exists(folder / "nothing"));
}

TEST_CASE("new file: replacing a file changes neither what a link points to nor who may read the new one",
          "[rendezvous][unit]") {
  const TemporaryFolder folder;
  const std::string victim = folder.write("victim", "precious");
  fs::create_symlink(victim, folder / "file");
  REQUIRE(replace_file(folder / "file", "new", 0600));
  CHECK(read_file(victim) == "precious");
  CHECK(read_file(folder / "file") == "new");
  struct stat status = {};
  REQUIRE(lstat((folder / "file").c_str(), &status) == 0);
  CHECK((S_ISREG(status.st_mode) && (status.st_mode & 07777) == 0600));
}

TEST_CASE("new file: after a failure nothing is left, and errno says why", "[rendezvous][unit]") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "folder");
  CHECK_FALSE(replace_file(folder / "folder", "new", 0600));
  CHECK(errno == EISDIR);
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
  CHECK_FALSE(replace_file(folder / "none/file", "new", 0600));
  CHECK(errno == ENOENT);
}
