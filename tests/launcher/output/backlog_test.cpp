// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/backlog.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/support/process.hpp"

using ddp::launcher::Backlog;
using ddp::launcher::Sink;

namespace {

// A log file with a beginning that the console was given, and what it was not given.
struct Lagging {
  Lagging() { log.write(1, "shown\n"); }
  void write(std::string_view text) {
    log.write(1, text);
    backlog.add(text, log);
  }
  ddp::testing::TemporaryFolder folder;
  const std::string path = folder / "stdout.log";
  Sink log{open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), Sink::Kind::File, path, nullptr};
  Backlog backlog{path};
};

std::string gap(const std::string& lines, const std::string& path, const std::string& why) {
  return "[ddprun: " + lines + " cannot be shown here: " + path + ": " + why + "]\n";
}

}  // namespace

TEST_CASE("backlog: what was not shown comes back from the file, in order", "[launcher][unit]") {
  Lagging stream;
  CHECK(stream.backlog.is_empty());
  stream.write("one\ntwo\n");
  stream.write("three\nfo");
  CHECK(stream.backlog.lines_in_file() == 4);
  CHECK(stream.backlog.take(6) == "one\ntw");
  CHECK(stream.backlog.lines_in_file() == 3);
  stream.write("ur\n");
  CHECK(stream.backlog.take(100) == "o\nthree\nfour\n");
  CHECK(stream.backlog.is_empty());
  CHECK(stream.backlog.lines_in_file() == 0);
  CHECK(stream.backlog.take(100).empty());
}

TEST_CASE("backlog: bytes that the file could not take follow those of the file", "[launcher][unit]") {
  Lagging stream;
  stream.write("in the file\n");
  stream.backlog.add_unwritten("not in it\n");
  CHECK(!stream.backlog.is_in_file());
  CHECK(stream.backlog.size() == 22);
  CHECK((stream.backlog.lines_in_file() == 1 && stream.backlog.lines_in_memory() == 1));
  CHECK(stream.backlog.take(100) == "in the file\n");
  CHECK(stream.backlog.take(100) == "not in it\n");
  CHECK((stream.backlog.is_empty() && stream.backlog.is_in_file()));
}

TEST_CASE("backlog: a file that was removed or replaced leaves a line about the gap", "[launcher][unit]") {
  Lagging stream;
  stream.write("one\ntwo\nthree");
  CHECK(stream.backlog.take(6) == "one\ntw");
  std::filesystem::remove(stream.path);
  CHECK(stream.backlog.take(100) == "\n" + gap("2 lines (7 bytes)", stream.path, "No such file or directory"));
  CHECK(stream.backlog.is_empty());

  Lagging other;
  other.write("one\n");
  std::filesystem::rename(other.path, other.path + ".1");
  ddp::testing::write_file(other.path, "another file, which is longer\n");
  CHECK(other.backlog.take(100) == gap("1 line (4 bytes)", other.path, "it is another file now"));
}

TEST_CASE("backlog: a file that was truncated leaves a line about the gap, and what follows is shown",
          "[launcher][unit]") {
  Lagging stream;
  stream.write("one\n");
  std::filesystem::resize_file(stream.path, 0);
  CHECK(stream.backlog.take(100) == gap("1 line (4 bytes)", stream.path, "it was truncated"));

  stream.write("two\n");
  std::filesystem::resize_file(stream.path, 0);
  stream.write("three\n");
  CHECK(stream.backlog.take(100) == gap("1 line (4 bytes)", stream.path, "it was truncated"));
  CHECK(stream.backlog.take(100) == "three\n");
}
