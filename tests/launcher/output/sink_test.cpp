// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/sink.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <vector>

#include "tests/support/hosts.hpp"
#include "tests/support/process.hpp"

using ddp::launcher::Sink;

namespace {

struct Warnings {
  std::vector<std::string> lines;
  Sink::Logger logger() {
    return [this](const std::string& text) { lines.push_back(text); };
  }
};

// Limits the size of files while it lives; writes beyond it fail, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, SIG_IGN);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_ = {};
};

}  // namespace

TEST_CASE("sink: a line that another writer left unfinished is ended first", "[launcher][unit]") {
  const ddp::testing::TemporaryFolder folder;
  Warnings warnings;
  const int fd = open((folder / "log").c_str(), O_WRONLY | O_CREAT, 0600);
  Sink sink(fd, Sink::Kind::File, "log", warnings.logger());
  sink.write(1, "one");
  CHECK(sink.has_open_line_of(1));
  sink.write(1, " goes on");
  sink.write(2, "two\n");
  sink.write(1, "one again\n");
  CHECK(ddp::testing::read_file(folder / "log") == "one goes on\ntwo\none again\n");
}

TEST_CASE("sink: a full disk is logged, and the file has a line about the gap once there is space again",
          "[launcher][unit]") {
  const ddp::testing::TemporaryFolder folder;
  Warnings warnings;
  Sink sink(open((folder / "log").c_str(), O_WRONLY | O_CREAT, 0600), Sink::Kind::File, "log", warnings.logger());
  {
    const FileSizeLimit limit(10);
    sink.write(1, "12345678\n");
    sink.write(1, "123456\n");
    sink.write(1, "lost\n");
  }
  sink.write(1, "after\n");
  CHECK(ddp::testing::read_file(folder / "log") ==
        "12345678\n1\n[ddprun: the disk was full, 11 bytes are missing here]\nafter\n");
  CHECK(sink.lost_lines() == 2);
  CHECK(sink.lost_why() == "File too large");
  REQUIRE(!warnings.lines.empty());
  CHECK(warnings.lines.front() == "cannot write to log: File too large; the job goes on without it");
}

TEST_CASE("sink: a reader that has gone is logged once, and no line is counted", "[launcher][unit]") {
  signal(SIGPIPE, SIG_IGN);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  close(ends[0]);
  Warnings warnings;
  Sink sink(ends[1], Sink::Kind::File, "stdout", warnings.logger());
  for (int i = 0; i < 2; ++i) sink.write(1, "nobody reads this\n");
  CHECK(warnings.lines == std::vector<std::string>{"nobody reads stdout any more; the job goes on without it"});
  CHECK(sink.lost_lines() == 0);
}

namespace {

// A pipe whose content can be read without waiting.
struct Pipe {
  Pipe() {
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
  ~Pipe() {
    close(ends[0]);
    close(ends[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  std::string read_all() const {
    std::string text(1 << 20, '\0');
    const ssize_t size = read(ends[0], text.data(), text.size());
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    return text;
  }
  int ends[2];
};

std::string read_to_the_end(const Pipe& console, Sink& sink) {
  std::string all = console.read_all();
  while (sink.is_behind()) {
    sink.flush();
    all += console.read_all();
  }
  return all;
}

}  // namespace

TEST_CASE("sink: a slow console gets everything in order, and stays blocking for processes that share it",
          "[launcher][unit]") {
  const Pipe console;
  Warnings warnings;
  Sink sink(console.ends[1], Sink::Kind::Console, "stdout", warnings.logger());
  std::string all;
  for (int i = 0; i < 20'000; ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    sink.write(i % 3, line);
    all += line;
  }
  CHECK(sink.is_behind());
  CHECK((fcntl(console.ends[1], F_GETFL) & O_NONBLOCK) == 0);
  CHECK((read_to_the_end(console, sink) == all));
  CHECK(!sink.is_behind());
  CHECK(warnings.lines.empty());
}

TEST_CASE("sink: a console that cannot be opened again does not block either", "[launcher][unit]") {
  if (geteuid() != 0) ddp::testing::skip("only root can become another user");
  const Pipe console;
  REQUIRE(seteuid(65534) == 0);  // the pipe belongs to root
  Warnings warnings;
  Sink sink(console.ends[1], Sink::Kind::Console, "stdout", warnings.logger());
  const int reopened = open(("/proc/self/fd/" + std::to_string(console.ends[1])).c_str(), O_WRONLY | O_NONBLOCK);
  REQUIRE(seteuid(0) == 0);
  REQUIRE(reopened < 0);
  std::string all;
  for (int i = 0; i < 20'000; ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    sink.write(1, line);
    all += line;
  }
  CHECK(sink.is_behind());
  CHECK((read_to_the_end(console, sink) == all));
}

TEST_CASE("sink: what is forgotten is counted, by whether a file has it, and the line that it cut is ended",
          "[launcher][unit]") {
  const Pipe console;
  Warnings warnings;
  Sink sink(console.ends[1], Sink::Kind::Console, "stdout", warnings.logger());
  const std::string line(99'999, 'a');
  sink.write(1, line + "\nnext\n", "/the/file");
  sink.write(2, "own\n");
  const Sink::Pending dropped = sink.drop_pending();
  CHECK((dropped.lines_in_file == 2 && dropped.file == "/the/file" && dropped.other_lines == 1));
  CHECK(!sink.is_behind());
  const std::string before = console.read_all();
  sink.write(2, "after\n");
  CHECK((before + console.read_all() == line.substr(0, before.size()) + "\nafter\n"));
}
