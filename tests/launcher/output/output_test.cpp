// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/output.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "rendezvous/base/pipe.hpp"
#include "tests/support/process.hpp"

using ddp::launcher::Console;
using ddp::launcher::Output;
using ddp::launcher::StreamRoute;
using ddp::rendezvous::Descriptor;

namespace {

// Returns how many files the epoll instances of this process watch.
int watched_files() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fdinfo")) {
    std::ifstream facts(entry.path());
    for (std::string line; std::getline(facts, line);) count += line.starts_with("tfd:");
  }
  return count;
}

// A child that has all descriptors of this process but one, as one has that is yet to execute its program. It ends with
// this object.
class IdleChild {
 public:
  explicit IdleChild(const Descriptor& but) : pid_(fork()) {
    char byte = 0;
    if (pid_ == 0) {
      close(but.get());
      close(end_.write_end.get());
      (void)!write(ready_.write_end.get(), &byte, 1);
      (void)!read(end_.read_end.get(), &byte, 1);
      _exit(0);
    }
    (void)!read(ready_.read_end.get(), &byte, 1);
  }
  ~IdleChild() {
    end_.write_end.close();
    waitpid(pid_, nullptr, 0);
  }
  IdleChild(const IdleChild&) = delete;
  IdleChild& operator=(const IdleChild&) = delete;

 private:
  ddp::rendezvous::Pipe end_ = ddp::rendezvous::make_pipe("to a child");
  ddp::rendezvous::Pipe ready_ = ddp::rendezvous::make_pipe("from a child");
  pid_t pid_;
};

}  // namespace

TEST_CASE("output: a stream that has ended is watched no more, though a child has its pipe too", "[launcher][unit]") {
  Output output([](const std::string&) {});
  const int before = watched_files();
  StreamRoute route{.console = Console::Stderr, .shown = false};
  Descriptor worker_end = output.open_stream(route);
  output.begin_round();
  output.last_words({0}, ddp::testing::kDeadline);
  CHECK(watched_files() == before + 1);
  const IdleChild child(worker_end);
  worker_end.close();
  SECTION("as another process takes the worker's place") {
    route.goes_on = true;
    worker_end = output.open_stream(route);
    output.begin_round();
    output.last_words({0}, ddp::testing::kDeadline);
    CHECK(watched_files() == before + 1);
  }
  SECTION("as the round ends") {
    output.end_round(ddp::testing::kDeadline);
    CHECK(watched_files() == before);
  }
}
