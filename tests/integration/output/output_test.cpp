// SPDX-License-Identifier: BSD-3-Clause
// The workers' output arrives complete, with whole lines and unchanged bytes.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <sstream>

#include "tests/integration/ddprun.hpp"
#include "tests/support/sanitizer.hpp"

using namespace ddp::testing;

namespace {

bool has_workers(const Process& job) {
  const std::vector<pid_t> pids = job.left_over();
  return std::any_of(pids.begin(), pids.end(), [](pid_t pid) {
    return count(read_file("/proc/" + std::to_string(pid) + "/comm"), "fake_worker") > 0;
  });
}

// Signals the job, whose workers have ended, before anything is read. A signal that the agent takes
// for the job, just before it waits for the console, does not end that wait.
void end_the_wait(const Process& job) {
  wait_until([&] {
    job.signal(SIGTERM);
    return job.left_over().empty();
  });
}

}  // namespace

TEST_CASE("output: lines of many workers never mix and none is lost", "[launcher][integration]") {
  constexpr int kLines = 300;
  const Result result = run(ddprun({"--nproc_per_node=4"}, {"lines=" + std::to_string(kLines)}));
  REQUIRE(result.code == 0);
  std::vector<int> next(4, 0);
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    int number = -1, rank = -1, end = 0;
    sscanf(line.c_str(), "line %d of rank %d is one whole line%n", &number, &rank, &end);
    REQUIRE(end == static_cast<int>(line.size()));
    REQUIRE(number == next.at(static_cast<std::size_t>(rank))++);
  }
  CHECK(next == std::vector<int>(4, kLines));
}

TEST_CASE("output: one worker's bytes pass as they are, its last line unfinished or not", "[launcher][integration]") {
  CHECK(run(ddprun({}, {"part=no newline"})).out == "no newline");
  CHECK(run(ddprun({}, {std::string("say=\xff\xfe invalid UTF-8")})).out == "\xff\xfe invalid UTF-8\n");
  Process asking(ddprun({}, {"part=Name? ", "catch=TERM", "wait"}));
  asking.wait_for("Name? ");  // before there is a newline
  asking.signal(SIGTERM);
  asking.wait();
}

TEST_CASE("output: an unfinished line is ended before another's begins", "[launcher][integration]") {
  const Result result = run(ddprun({"--nproc_per_node=2"}, {"part=unfinished"}));
  CHECK((result.out == "unfinished\nunfinished"));
}

TEST_CASE("output: a closed stdout ends the output, not the job", "[launcher][integration]") {
  Process::Options closed;
  closed.close_stdout = true;
  Process job(ddprun({"--nproc_per_node=2"}, {"lines=500", "shout=done"}), closed);
  const Result result = job.wait();
  CHECK(result.code == 0);
  CHECK(count(result.err, "done\n") == 2);
}

TEST_CASE("output: a process that keeps a worker's pipe open does not block ddprun", "[launcher][integration]") {
  Process job(ddprun({"--nproc_per_node=2", "--shutdown-timeout=1"}, {"escape", "say=last line"}));
  const Result result = job.wait();
  CHECK(result.code == 0);
  CHECK(count(result.out, "last line\n") == 2);
  CHECK(job.left_over().empty());
}

TEST_CASE("output: a slow reader slows the workers, and misses nothing", "[launcher][integration]") {
  constexpr int kLines = 20'000;
  Process job(ddprun({"--nproc_per_node=2"}, {"flood=" + std::to_string(kLines)}));
  job.wait_for("line 0 of");
  usleep(2'500'000);  // a slow reader: it reads nothing during this time
  const Result result = job.wait();
  CHECK(result.code == 0);
  CHECK(count(result.out, "is one whole line\n") == 2 * kLines);
  CHECK(count(result.err, "is one whole line\n") == 2 * kLines);
}

namespace {

// A worker that has ended after writing more than the pipe to the test holds, but less than that
// plus its own pipe.
struct SaidAndGone {
  static constexpr std::size_t kBytes = 120'000;
  SaidAndGone() : job(ddprun({"--log-dir", folder.path()}, {"error={}", "long=" + std::to_string(kBytes)})) {
    wait_until([&] { return has_started() && !has_workers(job); });
  }
  bool has_started() const {
    std::filesystem::recursive_directory_iterator files(folder.path());
    return std::any_of(begin(files), end(files), [](auto& file) { return file.path().filename() == "error.json"; });
  }
  TemporaryFolder folder;
  Process job;
};

}  // namespace

TEST_CASE("output: a reader that returns after the workers' end finds all of their output", "[launcher][integration]") {
  SaidAndGone worker;
  usleep(2'500'000);
  const Result result = worker.job.wait();
  CHECK(result.code == 0);
  CHECK(result.out.size() == SaidAndGone::kBytes + 1);
}

TEST_CASE("output: SIGTERM ends the wait for a reader that does not come back", "[launcher][integration]") {
  SaidAndGone worker;
  end_the_wait(worker.job);
  const Result result = worker.job.wait();
  CHECK(result.out.size() < SaidAndGone::kBytes);
  CHECK(count(result.err, "ddprun: stdout was not read to the end: 1 line lost, which no log file has\n") == 1);
}

namespace {

// Two teed workers that write lines to a console that nobody reads yet, and what they wrote.
struct Unread {
  static constexpr int kLines = 50'000;
  // `verbs` follow the flood.
  explicit Unread(const Words& options, const Words& verbs = {})
      : job(ddprun(Words{"--nproc_per_node=2", "--log-dir", folder.path()} + options,
                   Words{"flood=" + std::to_string(kLines)} + verbs)) {
    wait_until([&] { return whole_logs() == 2; });
  }
  int whole_logs() const {
    int whole = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
      const std::string end = "line " + std::to_string(kLines - 1) + " of rank";
      if (entry.path().filename() == "stdout.log" && count(read_file(entry.path()), end) == 1) ++whole;
    }
    return whole;
  }
  TemporaryFolder folder;
  Process job;
};

// Checks that the text has lines 0 to `lines` - 1 of both ranks, whole and in order, and returns
// the other lines.
std::string check_lines(const std::string& text, int lines) {
  std::vector<int> next(2, 0);
  std::string others;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    int prefix = -1, number = -1, rank = -1, end = 0;
    sscanf(line.c_str(), "[default%d]:line %d of rank %d is one whole line%n", &prefix, &number, &rank, &end);
    if (end == 0) {
      others += line + "\n";
    } else if (end != static_cast<int>(line.size()) || prefix != rank || number != next.at(std::size_t(rank))++) {
      FAIL(line);
    }
  }
  CHECK(next == std::vector<int>(2, lines));
  return others;
}

}  // namespace

TEST_CASE("output: a console that is read after the workers' end gets every teed line",
          "[launcher][integration][P13]") {
  Unread unread({"-t3"});
  wait_until([&] { return !has_workers(unread.job); });  // the console did not block them
  const Result result = unread.job.wait();
  CHECK(result.code == 0);
  CHECK(check_lines(result.out, Unread::kLines).empty());
  CHECK(check_lines(result.err, Unread::kLines).empty());
}

TEST_CASE("output: the failure report follows the workers' lines that a slow console missed",
          "[launcher][integration]") {
  Unread unread({"-t3"}, {"meet", "exit=5"});
  const Result result = unread.job.wait();
  CHECK(result.code == 5);
  check_lines(result.err, Unread::kLines);
  CHECK(result.err.rfind("[default") < result.err.find("ddprun: "));
}

TEST_CASE("output: SIGTERM ends the wait for a console, and what it did not show is counted and named",
          "[launcher][integration]") {
  Unread unread({"-t1", "-r2"});
  wait_until([&] { return !has_workers(unread.job); });
  end_the_wait(unread.job);
  const Result result = unread.job.wait();
  int lost = 0;
  char file[200] = "";
  CAPTURE(result.err);
  REQUIRE(sscanf(result.err.c_str() + std::min(result.err.size(), result.err.find("ddprun: stdout was")),
                 "ddprun: stdout was not read to the end: %d lines not shown, which are in %199s and 1 other file\n",
                 &lost, file) == 2);
  CHECK(count(result.out, "is one whole line\n") + lost == 2 * Unread::kLines);
  CHECK(count(read_file(file), "is one whole line\n") == Unread::kLines);
}

TEST_CASE("output: without its guardian ddprun does not wait for a console", "[launcher][integration]") {
  Unread unread({"-t1", "-r2"});
  wait_until([&] { return !has_workers(unread.job); });
  kill(unread.job.pid(), SIGKILL);
  CHECK(unread.job.all_gone());
}

TEST_CASE("output: a reader that goes away while it is behind ends the output, not the job",
          "[launcher][integration]") {
  Unread unread({"-t1", "-r2"}, {"say=last"});
  unread.job.hang_up();
  const Result result = unread.job.wait();
  CHECK(result.code == 0);
  // The line is not awaited where the job has ended by then.
  CHECK((result.err.empty() || result.err == "ddprun: nobody reads stdout any more; the job goes on without it\n"));
}

TEST_CASE("output: a log file that was removed before the console had its lines is reported there",
          "[launcher][integration]") {
  Unread unread({"-t1", "-r2"});
  for (const auto& run : std::filesystem::directory_iterator(unread.folder.path())) {
    std::filesystem::remove_all(run.path());
  }
  const Result result = unread.job.wait();
  CHECK(result.code == 0);
  CHECK(count(result.out, " cannot be shown here: " + unread.folder.path()) == 2);
  CHECK(count(result.out, "stdout.log: No such file or directory]\n") == 2);
}

TEST_CASE("output: a console that takes nothing costs no memory", "[launcher][integration]") {
  constexpr int kMegabytes = 100;
  const TemporaryFolder folder;
  Process job(ddprun({"-t1", "--log-dir", folder.path()}, {"pour=" + std::to_string(kMegabytes), "memory"}));
  wait_until([&] {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
      std::error_code gone;  // ddprun makes files to see whether it can, and removes them
      const auto size = entry.is_regular_file(gone) ? entry.file_size(gone) : 0;
      if (!gone && size > kMegabytes * 1'000'000) return !has_workers(job);
    }
    return false;
  });
  const Result result = job.wait();
  CHECK(result.code == 0);
  const int lines = count(result.out, "[default0]:sixty-three bytes of a line that says nothing, again and again\n");
  CHECK(lines >= kMegabytes * 1'000'000 / 63);
  long memory = 0;
  REQUIRE(sscanf(result.out.c_str() + result.out.rfind("[default0]:"), "[default0]:memory %ld", &memory) == 1);
  if (!kIsSanitized) CHECK(memory < 40'000);  // KiB
}

TEST_CASE("output: a part of a line is shown before its end", "[launcher][integration]") {
  const TemporaryFolder folder;
  for (const Words& options : {Words{}, Words{"-t1", "--log-dir", folder.path()}}) {
    Process job(ddprun(options + Words{"--nproc_per_node=2"},
                       {"0:ignore=USR1", "0:note=USR2", "0:part=Name? ", "0:until=USR2", "1:ignore=USR2", "1:note=USR1",
                        "1:shout=armed", "1:until=USR1"}));
    job.wait_for("armed");
    job.wait_for("Name? ");
    job.signal(SIGUSR1);
    job.wait_for("got SIGUSR1\n");
    job.signal(SIGUSR2);
    const Result result = job.wait();
    CHECK(result.out == (options.empty() ? "Name? \nrank 1 got SIGUSR1\nrank 0 got SIGUSR2\n"
                                         : "[default0]:Name? \n[default1]:rank 1 got SIGUSR1\n"
                                           "[default0]:rank 0 got SIGUSR2\n"));
  }
}

TEST_CASE("output: a part of a line on stdout is ended before a line on stderr, where both are one console",
          "[launcher][integration]") {
  const TemporaryFolder folder;
  const Words command = ddprun({"-t3", "--log-dir", folder.path()},
                               {"part=Name? ", "note=USR1", "part=Sir? ", "until=USR1", "shout=err"});
  Process job(Words{"sh", "-c", "exec \"$0\" \"$@\" 2>&1"} + command);
  job.wait_for("[default0]:Name? Sir? ");
  job.signal(SIGUSR1);
  CHECK(job.wait().out == "[default0]:Name? Sir? rank 0 got SIGUSR1\n[default0]:err\n");
}

TEST_CASE("output: what a worker writes to stdout and stderr keeps its order and its lines where both are one console",
          "[launcher][integration]") {
  constexpr int kPairs = 300;
  const Words worker = {
      "--no-python", "sh", "-c",
      "for i in $(seq " + std::to_string(kPairs) + "); do printf 'o %d' $i; echo \" e $i\" >&2; echo \"o $i\"; done"};
  std::string expected;
  for (int i = 1; i <= kPairs; ++i) {
    const std::string number = std::to_string(i);
    expected += "o " + number + " e " + number + "\no " + number + "\n";
  }
  for (const std::string workers : {"1", "2"}) {
    const Words command = ddprun_raw(Words{"--nproc-per-node", workers, "--local-ranks-filter", "0"} + worker);
    CHECK((run(Words{"sh", "-c", "exec \"$0\" \"$@\" 2>&1"} + command).out == expected));
  }
}

TEST_CASE("output: where no pseudo-terminal can be made, the workers of a job on a terminal write to pipes",
          "[launcher][integration]") {
  const Words without_ptys = {"unshare", "-rm", "sh", "-c", "mount --bind /dev/null /dev/ptmx && exec \"$@\"", "sh"};
  if (run(without_ptys + Words{"true"}).code != 0) skip("no mount namespaces here");
  Process::Options terminal;
  terminal.on_terminal = true;
  const Result result = run(without_ptys + ddprun({"--nproc_per_node=2"}, {"tty"}), terminal);
  CHECK(result.code == 0);
  CHECK(count(result.out, "stdout other") == 2);
  CHECK(count(result.out, "cannot open a pseudo-terminal for the workers: ") == 1);
}
