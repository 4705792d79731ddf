// SPDX-License-Identifier: BSD-3-Clause
// Stacks of real processes, by the real tools where they are, and by programs that fail as tools may.
#include "launcher/stacks/take_stacks.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>

#include "launcher/stacks/kernel_state.hpp"
#include "launcher/stacks/tool_run.hpp"
#include "tests/support/process.hpp"

using namespace ddp::launcher;
using namespace std::chrono_literals;
using ddp::testing::TemporaryFolder;

namespace {

extern "C" [[noreturn]] __attribute__((noinline)) void waits_for_ever() {
  for (;;) pause();
}

// A child that waits in a function of a known name, until the test is over.
class Child {
 public:
  Child() : pid_(fork()) {
    if (pid_ == 0) waits_for_ever();
    while (state() != 'S') sched_yield();
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid() const { return pid_; }
  char state() const {
    const auto threads = kernel_threads(pid_);
    return threads.empty() ? '?' : threads.begin()->second.state;
  }

 private:
  pid_t pid_;
};

std::string program(const TemporaryFolder& folder, const std::string& name, const std::string& text) {
  const std::string path = folder / name;
  std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
  chmod(path.c_str(), 0700);
  return path;
}

}  // namespace

TEST_CASE("stacks: a native program's functions are named, and it goes on", "[launcher][integration]") {
  const StackTools tools = find_stack_tools(getpid());
  if (tools.eu_stack.empty()) {
    std::puts("skipped: eu-stack is not here (Debian's package elfutils)");
    std::exit(77);
  }
  const Child child;
  const auto stacks = take_stacks({{3, child.pid()}}, tools, 30s);
  REQUIRE(stacks.size() == 1);
  CHECK(stacks[0].rank == 3);
  if (!stacks[0].missing.empty() && stacks[0].missing[0].find("not permitted") != std::string::npos) {
    std::puts("skipped: no process may be traced here (ptrace_scope, or a container without SYS_PTRACE)");
    std::exit(77);
  }
  CHECK(stacks[0].missing.empty());
  REQUIRE(stacks[0].threads.size() == 1);
  std::string functions;
  for (const Frame& frame : stacks[0].threads[0].native) functions += frame.function + " ";
  CHECK_THAT(functions, Catch::Contains("waits_for_ever "));
  while (child.state() != 'S') sched_yield();  // ends by the test's time limit if it stays stopped
}

TEST_CASE("stacks: without tools there is what the kernel says, and how to get more", "[launcher][integration]") {
  const Child child;
  const auto stacks = take_stacks({{0, child.pid()}, {1, 0x7ffffff0}}, {}, 30s);
  REQUIRE(stacks.size() == 2);
  CHECK_THAT(stacks[0].threads.at(0).kernel, Catch::StartsWith("asleep"));
  CHECK_THAT(stacks[0].missing.at(0), Catch::Contains("elfutils"));
  CHECK(stacks[1].threads.empty());
  CHECK(stacks[1].missing == std::vector<std::string>{"the process has ended"});
}

TEST_CASE("stacks: a tool that hangs is killed at the deadline, and whom it left stopped goes on",
          "[launcher][integration]") {
  const TemporaryFolder folder;
  const Child child;
  const std::string tool = program(folder, "tool", "kill -STOP $3; while :; do sleep 1; done");
  const auto begin = std::chrono::steady_clock::now();
  const auto stacks = take_stacks({{0, child.pid()}}, {"", tool}, 500ms);
  CHECK(std::chrono::steady_clock::now() - begin < 20s);
  CHECK(stacks[0].missing == std::vector<std::string>{"eu-stack: it took too long"});
  while (child.state() != 'S') sched_yield();  // ends by the test's time limit if it stays stopped
}

TEST_CASE("stacks: who was stopped before stays stopped", "[launcher][integration]") {
  const Child child;
  kill(child.pid(), SIGSTOP);
  while (child.state() != 'T') sched_yield();
  const auto stacks = take_stacks({{0, child.pid()}}, find_stack_tools(child.pid()), 30s);
  CHECK(stacks[0].threads.at(0).kernel == "stopped by a signal");
  CHECK(child.state() == 'T');
}

TEST_CASE("stacks: a tool's complaint is said", "[launcher][integration]") {
  const TemporaryFolder folder;
  const Child child;
  const auto stacks =
      take_stacks({{0, child.pid()}}, {"", program(folder, "tool", "echo one >&2; echo 'no right' >&2; exit 1")}, 30s);
  CHECK(stacks[0].missing == std::vector<std::string>{"eu-stack: no right"});
}

TEST_CASE("tools: they run side by side, and what each prints is kept", "[launcher][integration]") {
  std::vector<ToolRun> runs = {{{"/bin/sh", "-c", "echo out; echo err >&2"}},
                               {{"/bin/nothing-there"}},
                               {{"/bin/sh", "-c", "head -c 1000000 /dev/zero"}}};
  run_tools(runs, std::chrono::steady_clock::now() + 60s);
  CHECK(runs[0].out == "out\n");
  CHECK(runs[0].err == "err\n");
  CHECK(runs[0].why_not.empty());
  CHECK_THAT(runs[1].why_not, Catch::Contains("No such file"));
  CHECK(runs[2].out.size() == 1'000'000);
}

TEST_CASE("stacks: a process that a worker has started is shown with it, where there is time",
          "[launcher][integration]") {
  const Child child;
  const std::vector<std::pair<int, pid_t>> self = {{0, getpid()}};
  const std::vector<pid_t> found = descendants_of(getpid(), 4);
  CHECK(std::find(found.begin(), found.end(), child.pid()) != found.end());
  CHECK(descendants_of(getpid(), 0).empty());
  const auto with = take_stacks(self, {}, 5s);
  REQUIRE(with.size() == 1);
  REQUIRE(with[0].children.size() == found.size());  // this process may have others, of earlier tests
  const auto is_child = [&](const ChildStacks& one) { return one.pid == child.pid(); };
  const auto place = std::find_if(with[0].children.begin(), with[0].children.end(), is_child);
  REQUIRE(place != with[0].children.end());
  const ChildStacks& shown = *place;
  CHECK(shown.name.starts_with("spawner_test"));
  REQUIRE(shown.threads.size() == 1);
  CHECK_THAT(shown.threads[0].kernel, Catch::Matchers::Contains("asleep"));
  CHECK(take_stacks(self, {}, 1s)[0].children.empty());
}
