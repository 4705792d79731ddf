// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/sink.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <vector>

#include "tests/support/process.hpp"

using ddp::launcher::Sink;

namespace {

struct Warnings {
  std::vector<std::string> told;
  Sink::Warn warn() {
    return [this](const std::string& text) { told.push_back(text); };
  }
};

// Files may not grow beyond this; then writes fail, as on a full disk.
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

TEST_CASE("sink: a part of a line that another writer left open is ended first", "[launcher][unit]") {
  const ddp::testing::TemporaryFolder folder;
  Warnings warnings;
  const int fd = open((folder / "log").c_str(), O_WRONLY | O_CREAT, 0600);
  Sink sink(fd, Sink::Descriptor::Owned, "log", warnings.warn());
  sink.write(1, "one");
  CHECK(sink.has_open_line_of(1));
  sink.write(1, " goes on");
  sink.write(2, "two\n");
  sink.write(1, "one again\n");
  CHECK(ddp::testing::read_file(folder / "log") == "one goes on\ntwo\none again\n");
}

TEST_CASE("sink: a full disk is told, and when it has room again so is the gap, in the file", "[launcher][unit]") {
  const ddp::testing::TemporaryFolder folder;
  Warnings warnings;
  Sink sink(open((folder / "log").c_str(), O_WRONLY | O_CREAT, 0600), Sink::Descriptor::Owned, "log", warnings.warn());
  {
    const FileSizeLimit limit(10);
    sink.write(1, "12345678\n");
    sink.write(1, "123456\n");
    sink.write(1, "lost\n");
  }
  sink.write(1, "after\n");
  CHECK(ddp::testing::read_file(folder / "log") ==
        "12345678\n1\n[ddprun: the disk was full, 11 bytes are missing here]\nafter\n");
  REQUIRE(!warnings.told.empty());
  CHECK(warnings.told.front() == "cannot write to log: File too large; the job goes on without it");
}

TEST_CASE("sink: a reader that has gone is left in silence", "[launcher][unit]") {
  signal(SIGPIPE, SIG_IGN);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  close(ends[0]);
  Warnings warnings;
  Sink sink(ends[1], Sink::Descriptor::Owned, "stdout", warnings.warn());
  sink.write(1, "nobody reads this\n");
  CHECK(warnings.told.empty());
}
