// SPDX-License-Identifier: BSD-3-Clause
// Stacks of real processes, by the real tools where they are, and by programs that fail as tools may.
#include "launcher/diagnosis/stacks/take_stacks.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>
#include <iterator>

#include "launcher/diagnosis/stacks/kernel_state.hpp"
#include "launcher/diagnosis/stacks/stack_json.hpp"
#include "launcher/diagnosis/stacks/stack_report.hpp"
#include "launcher/diagnosis/stacks/tool_run.hpp"
#include "rendezvous/base/pipe.hpp"
#include "tests/support/hosts.hpp"
#include "tests/support/process.hpp"

using namespace ddp::launcher;
using namespace std::chrono_literals;
using ddp::testing::skip_with_thread_sanitizer;
using ddp::testing::TemporaryFolder;

namespace {

[[gnu::always_inline]] inline void waits_inside() {
  for (;;) pause();
}
constexpr int kLineOfCall = __LINE__ + 2;
extern "C" [[noreturn]] __attribute__((noinline)) void waits_for_ever() {
  waits_inside();
  __builtin_unreachable();
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
  skip_with_thread_sanitizer("each process has a thread of the sanitizer's");
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
  for (const StackFrame& frame : stacks[0].threads[0].native) functions += frame.function + " ";
  CHECK_THAT(functions, Catch::Contains("waits_inside waits_for_ever "));
  for (const StackFrame& frame : stacks[0].threads[0].native) {
    if (frame.function == "waits_for_ever") CHECK(frame.line == kLineOfCall);
  }
  while (child.state() != 'S') sched_yield();  // ends by the test's time limit if it stays stopped
}

TEST_CASE("stacks: a py-spy beside a Python counts unless another user can replace it", "[launcher][unit]") {
  const TemporaryFolder folder;
  const std::string beside = program(folder, "py-spy", "exit 1"), python = folder / "python";
  const auto found = [&] { return find_stack_tools(python).py_spy == beside; };
  CHECK(found());
  chmod(beside.c_str(), 0707);
  CHECK_FALSE(found());
  chmod(beside.c_str(), 0700);
  chmod(folder.path().c_str(), 0777);
  CHECK_FALSE(found());
  chmod(folder.path().c_str(), 01777);  // as /tmp
  CHECK(found());
  chmod(folder.path().c_str(), 0700);
  if (geteuid() == 0) {
    REQUIRE(chown(beside.c_str(), 65534, 65534) == 0);
    CHECK_FALSE(found());
    REQUIRE(chown(beside.c_str(), 0, 65534) == 0);
    chmod(beside.c_str(), 0770);
    CHECK_FALSE(found());
  }
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

TEST_CASE("stacks: of a thread in the kernel that no signal reaches there is its state, and no tool leaves it stopped",
          "[launcher][integration]") {
  skip_with_thread_sanitizer("vfork() does not wait");
  // vfork() waits there until its child is gone or another program: also what a worker in mid-fork looks like.
  ddp::rendezvous::Pipe ends = ddp::rendezvous::make_pipe("to end the child");
  const pid_t forks = fork();
  if (forks == 0) {
    ends.write_end.close();
    const pid_t held = vfork();
    if (held == 0) {
      char nothing = 0;
      [[maybe_unused]] const auto none = read(ends.read_end.get(), &nothing, 1);
      _exit(0);
    }
    waits_for_ever();
  }
  const auto state = [forks] { return kernel_threads(forks).at(forks).state; };
  while (state() != 'D') sched_yield();
  const StackTools tools = find_stack_tools(forks);
  const auto stacks = take_stacks({{0, forks}}, tools, 1s);
  CHECK_THAT(stacks[0].threads.at(0).kernel, Catch::StartsWith("in the kernel, where no signal reaches it"));
  if (!tools.eu_stack.empty()) CHECK(stacks[0].missing == std::vector<std::string>{"eu-stack: it took too long"});
  CHECK_FALSE(is_about_to_stop(forks));
  ends.write_end.close();  // the child ends
  while (state() == 'D') sched_yield();
  while (state() == 'R') sched_yield();
  CHECK(state() == 'S');
  kill(forks, SIGKILL);
  waitpid(forks, nullptr, 0);
}

TEST_CASE("stacks: of a Python that py-spy does not know there are py-spy's words, and the native functions",
          "[launcher][integration]") {
  const TemporaryFolder folder;
  const std::string words = "Unsupported version of Python: 3.99.0";
  const auto py_spy_says = [&folder](const std::string& said) {
    return program(folder, "py-spy", "echo 'Error: " + said + "' >&2; exit 1");
  };
  const StackTools tools = {py_spy_says(words), find_stack_tools(getpid()).eu_stack};
  const pid_t python = fork();
  if (python == 0) {
    execlp("python3", "python3", "-c", "import time; time.sleep(1000)", nullptr);
    _exit(77);
  }
  const auto state = [python] { return kernel_threads(python).at(python).state; };
  const auto has_python = [&] {
    std::ifstream maps("/proc/" + std::to_string(python) + "/maps");
    return std::string(std::istreambuf_iterator<char>(maps), {}).find("/python3") != std::string::npos;
  };
  while (state() != 'Z' && !(has_python() && state() == 'S')) sched_yield();
  const bool has_ended = state() == 'Z';
  const auto stacks = take_stacks({{0, python}}, tools, 30s);
  py_spy_says("Failed to find a python interpreter in the .data section");  // a worker that is about to exit
  const auto at_its_end = take_stacks({{0, python}}, {tools.py_spy, ""}, 30s);
  kill(python, SIGKILL);
  waitpid(python, nullptr, 0);
  if (has_ended) {
    std::puts("skipped: no python3 here");
    std::exit(77);
  }
  REQUIRE_FALSE(stacks[0].missing.empty());
  CHECK(stacks[0].missing[0] == "py-spy: Error: " + words);
  CHECK_THAT(at_its_end[0].missing.back(), Catch::StartsWith("py-spy finds no Python in it: it is about to end"));
  CHECK_THAT(stacks[0].threads.at(0).kernel, Catch::StartsWith("asleep"));
  const bool is_traced = !tools.eu_stack.empty() && stacks[0].missing.size() == 1;
  if (is_traced) CHECK_FALSE(stacks[0].threads[0].native.empty());
}

TEST_CASE(
    "stacks: of a worker's process that may not be traced, as under Yama, there is its state and a line that says so",
    "[launcher][integration]") {
  const TemporaryFolder folder;
  const Child child;
  const std::string self = std::to_string(getpid());
  const std::string tool = program(folder, "eu-stack",
                                   "for last; do :; done\n"
                                   "[ $last = " +
                                       self + " ] && echo 'TID " + self +
                                       ":' && echo '#0  0x1 f' && exit 0\n"
                                       "echo $0': Operation not permitted' >&2; exit 1");
  const auto stacks = take_stacks({{0, getpid()}}, {"", tool}, 30s);
  REQUIRE(stacks.size() == 1);
  CHECK(stacks[0].missing.empty());
  const auto& children = stacks[0].children;
  const auto found =
      std::find_if(children.begin(), children.end(), [&](const ChildStacks& one) { return one.pid == child.pid(); });
  REQUIRE(found != children.end());
  CHECK(found->missing == std::vector<std::string>{"eu-stack: Operation not permitted"});
  const auto read = stacks_from_json(stacks_json(stacks));
  REQUIRE(read);
  const auto lines = beside_main_thread(read->front());
  CHECK(std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
    return line.starts_with("process " + std::to_string(child.pid()) + " (") && line.find("asleep") != line.npos &&
           line.ends_with("(eu-stack: Operation not permitted)");
  }));
}

TEST_CASE("stacks: a program without symbols has the names that its libraries export", "[launcher][integration]") {
  const pid_t sleeps = fork();
  if (sleeps == 0) execlp("sleep", "sleep", "1000", nullptr);
  while (kernel_threads(sleeps).at(sleeps).name != "sleep" || kernel_threads(sleeps).at(sleeps).state != 'S') {
    sched_yield();
  }
  const StackTools tools = find_stack_tools(sleeps);
  const auto stacks = take_stacks({{0, sleeps}}, tools, 30s);
  kill(sleeps, SIGKILL);
  waitpid(sleeps, nullptr, 0);
  CHECK_THAT(stacks[0].threads.at(0).kernel, Catch::StartsWith("asleep"));
  if (tools.eu_stack.empty() || !stacks[0].missing.empty()) return;  // may not be traced here
  std::string functions;
  for (const StackFrame& frame : stacks[0].threads[0].native) functions += frame.function + " ";
  CHECK_THAT(functions, Catch::Contains("clock_nanosleep"));
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

TEST_CASE("stacks: what eu-stack says where it may not trace is said, though it lists the threads",
          "[launcher][integration]") {
  const TemporaryFolder folder;
  const Child child;
  const std::string id = std::to_string(child.pid());
  const std::string tool = program(folder, "tool",
                                   "echo 'PID " + id + " - process'; echo 'TID " + id +
                                       ":'\n"
                                       "echo $0': dwfl_thread_getframes tid " +
                                       id +
                                       ": Operation not permitted' >&2\n"
                                       "echo \"$0: Couldn't show any frames.\" >&2; exit 2");
  const auto stacks = take_stacks({{0, child.pid()}}, {"", tool}, 30s);
  CHECK(stacks[0].missing ==
        std::vector<std::string>{"eu-stack: dwfl_thread_getframes tid " + id + ": Operation not permitted"});
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
  skip_with_thread_sanitizer("each process has a thread of the sanitizer's");
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
