// SPDX-License-Identifier: BSD-3-Clause
// --redirects, --tee and related options: workers' output reaches the files and the console as it
// should, whatever happens to the files.
#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <sstream>

#include "tests/integration/ddprun.hpp"
#include "tests/integration/output/log_files.hpp"
#include "tests/support/hosts.hpp"
#include "tests/support/sanitizer.hpp"

using namespace ddp::testing;
using namespace std::string_literals;

namespace {

using Files = std::map<std::string, std::string>;

Words two_workers(const TemporaryFolder& folder) {
  return {"--nproc_per_node=2", "--rdzv-id=job", "--log-dir", folder.path()};
}

// Checks that the lines "line I of rank R ..." of each rank are complete and in order, each whole
// after its prefix and rank, if any.
void check_flood(const std::string& text, const std::vector<int>& ranks, int lines, const std::string& prefix = "") {
  std::map<int, int> next;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    int number = -1, rank = -1, end = 0;
    const std::string bare = line.substr(std::min(line.size(), line.find("line ")));
    sscanf(bare.c_str(), "line %d of rank %d is one whole line%n", &number, &rank, &end);
    if (end != static_cast<int>(bare.size()) || number != next[rank]) FAIL("after " << next[rank] << ": " << line);
    if (!prefix.empty() && line != prefix + std::to_string(rank) + "]:" + bare) FAIL(line);
    ++next[rank];
  }
  for (const int rank : ranks) CHECK(next[rank] == lines);
  CHECK(next.size() == ranks.size());
}

int flood_lines() {
  const char* lines = getenv("DDPRUN_TEST_LOG_LINES");
  return lines ? atoi(lines) : 3000;
}

}  // namespace

TEST_CASE("logs: redirected streams are in files and not on the console", "[launcher][integration]") {
  const TemporaryFolder folder;
  const Result result = run(ddprun(two_workers(folder) + Words{"-r", "3"}, {"say=out", "shout=err"}));
  CHECK((result.code == 0 && result.out.empty() && result.err.empty()));
  const LogFiles files(folder.path());
  CHECK(files.name().rfind("job_", 0) == 0);
  CHECK(files.all() == Files{{"attempt_0/0/stdout.log", "out\n"},
                             {"attempt_0/0/stderr.log", "err\n"},
                             {"attempt_0/1/stdout.log", "out\n"},
                             {"attempt_0/1/stderr.log", "err\n"}});
}

TEST_CASE("logs: a redirected worker holds its file itself", "[launcher][integration]") {
  const TemporaryFolder folder;
  Process job(ddprun({"--log-dir", folder.path(), "-r1"}, {"shout=ready", "wait"}));
  job.wait_for("ready");
  const pid_t worker = only_child_of(agent_of(job));
  const std::string held = std::filesystem::read_symlink("/proc/" + std::to_string(worker) + "/fd/1");
  CHECK(count(held, "/attempt_0/0/stdout.log") == 1);
  job.signal(SIGTERM);
  job.wait();
}

TEST_CASE("logs: teed streams are in files as they are and on the console with a prefix", "[launcher][integration]") {
  const TemporaryFolder folder;
  const Result result =
      run(ddprun(two_workers(folder) + Words{"--tee", "0:3,1:2"}, {"say=out", "shout=err", "part=end"}));
  CHECK(result.code == 0);
  CHECK(count(result.out, "[default0]:out\n") == 1);
  CHECK(count(result.out, "[default0]:end") == 1);
  CHECK(count(result.out, "out\n") == 2);
  CHECK((count(result.err, "[default0]:err\n") == 1 && count(result.err, "[default1]:err\n") == 1));
  CHECK(LogFiles(folder.path()).all() == Files{{"attempt_0/0/stdout.log", "out\nend"},
                                               {"attempt_0/0/stderr.log", "err\n"},
                                               {"attempt_0/1/stderr.log", "err\n"}});
}

TEST_CASE("logs: the prefix is a template, of the option or of a variable", "[launcher][integration]") {
  const TemporaryFolder folder;
  Process::Options environment;
  environment.environment["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"] = "[rank${rank}]: ";
  const Result result = run(ddprun(two_workers(folder) + Words{"--redirect=3", "--tee=3"}, {"say=out"}), environment);
  CHECK(count(result.out, "[rank0]: out\n") == 1);
  CHECK(count(result.out, "[rank1]: out\n") == 1);
  environment.environment["PET_LOG_LINE_PREFIX_TEMPLATE"] = "${role_name}/$local_rank ${what} ";
  environment.environment["PET_TEE"] = "1";
  CHECK(run(ddprun({"--role=r", "--log_dir", folder.path()}, {"say=out"}), environment).out == "r/0 ${what} out\n");
}

TEST_CASE("logs: bytes that are not text pass through", "[launcher][integration][P15]") {
  const TemporaryFolder folder;
  const Result result = run(ddprun({"-t", "1", "--log-dir", folder.path()}, {"say=\xff\xfe", "nul"}));
  CHECK(result.out == "[default0]:\xff\xfe\n[default0]:a\0b\n"s);
  CHECK(LogFiles(folder.path()).at("attempt_0/0/stdout.log") == "\xff\xfe\na\0b\n"s);
}

TEST_CASE("logs: of a teed line that carriage returns begin again, the console has the newest state, the file all",
          "[launcher][integration]") {
  const TemporaryFolder folder;
  const Result result = run(ddprun({"-t", "1", "--log-dir", folder.path()}, {"say=1%\r2%\r3%\r", "say=next"}));
  CHECK(result.out == "[default0]:3%\n[default0]:next\n");
  CHECK(LogFiles(folder.path()).at("attempt_0/0/stdout.log") == "1%\r2%\r3%\r\nnext\n");
}

TEST_CASE("logs: only the ranks of --local-ranks-filter are on the console", "[launcher][integration]") {
  const TemporaryFolder folder;
  const Words filter = {"--local-ranks-filter=1"};
  const Result plain = run(ddprun(Words{"--nproc_per_node=2"} + filter, {"0:say=zero", "1:say=one", "shout=err"}));
  CHECK((plain.out == "one\n" && plain.err == "err\n"));
  const Result teed = run(ddprun(two_workers(folder) + filter + Words{"-t3"}, {"0:say=zero", "1:say=one"}));
  CHECK(teed.out == "[default1]:one\n");
  CHECK(LogFiles(folder.path()).at("attempt_0/0/stdout.log") == "zero\n");
}

TEST_CASE("logs: a hidden rank's stderr is still in the failure report", "[launcher][integration]") {
  const Result result =
      run(ddprun({"--nproc_per_node=2", "--local-ranks-filter=1"}, {"0:shout=what went wrong", "0:exit=3", "1:wait"}));
  CHECK(result.code == 3);
  CHECK(count(result.err, "| what went wrong\n") == 1);
  CHECK(count(result.err, "what went wrong") == 1);
}

TEST_CASE("logs: teed lines with a word of the filters are in the filtered file too", "[launcher][integration]") {
  const TemporaryFolder folder;
  const Words filters = {"--duplicate-stdout-filters=loss,a,,b", "--duplicate_stderr_filters=error"};
  run(ddprun(two_workers(folder) + filters + Words{"-t", "0:3", "-r", "1:3"},
             {"say=loss 1", "say=other", "say=a,b", "say=a", "shout=no loss", "shout=an error"}));
  const LogFiles files(folder.path());
  CHECK(files.at("attempt_0/filtered_stdout.log") == "[default0]:loss 1\n[default0]:a,b\n");
  CHECK(files.at("attempt_0/filtered_stderr.log") == "[default0]:an error\n");
}

TEST_CASE("logs: with --log-dir /dev/null everything is on the console, and there is no error file",
          "[launcher][integration]") {
  const Result result =
      run(ddprun({"--log-dir=/dev/null", "-r3", "-t3"}, {"say=out", "shout=err", "env=TORCHELASTIC_ERROR_FILE"}));
  CHECK((result.out == "out\n[TORCHELASTIC_ERROR_FILE=]\n" && result.err == "err\n"));
}

TEST_CASE("logs: without --log-dir they are kept in a temporary folder, which is named", "[launcher][integration]") {
  const TemporaryFolder folder;
  Process::Options environment;
  environment.environment["TMPDIR"] = folder.path();
  const Result result = run(ddprun({"-r1", "--rdzv-id=job"}, {"say=out"}), environment);
  const LogFiles files(folder.path());
  CHECK(count(result.err, "logs are in " + folder.path() + "/" + files.name() + " (--log-dir") == 1);
  CHECK(files.at("attempt_0/0/stdout.log") == "out\n");
  const TemporaryFolder empty;
  environment.environment["TMPDIR"] = empty.path();
  CHECK(run(ddprun({}, {"say=out"}), environment).err.empty());
  CHECK(std::filesystem::is_empty(empty.path()));
}

TEST_CASE("logs: each attempt has files of its own", "[launcher][integration]") {
  const TemporaryFolder folder;
  run(ddprun({"--max-restarts=1", "-t1", "--log-dir", folder.path()},
             {"0/0:say=first", "0/0:exit=1", "0/1:say=second"}));
  const LogFiles files(folder.path());
  CHECK(files.at("attempt_0/0/stdout.log") == "first\n");
  CHECK(files.at("attempt_1/0/stdout.log") == "second\n");
}

TEST_CASE("logs: the failure report has the end of a redirected or teed stderr and names its file",
          "[launcher][integration]") {
  for (const char* how : {"-r3", "-t3"}) {
    const TemporaryFolder folder;
    const Result result =
        run(ddprun({how, "--log-dir", folder.path(), "--rdzv-id=job"}, {"flood=1000", "shout=the end", "exit=5"}));
    CAPTURE(how, result.err);
    CHECK(result.code == 5);
    CHECK(count(result.err, "| line 999 of rank 0") == 1);
    CHECK(count(result.err, "| line 981 of rank 0") == 1);
    CHECK(count(result.err, "| line 980 of rank 0") == 0);
    CHECK(count(result.err, "| the end\n") == 1);
    const std::string file = folder.path() + "/" + LogFiles(folder.path()).name() + "/attempt_0/0/stderr.log";
    CHECK(count(result.err, "all of its stderr: " + file + "\n") == 1);
  }
}

TEST_CASE("logs: nothing is lost from eight workers that write as fast as they can", "[launcher][integration][P13]") {
  const TemporaryFolder folder;
  const int lines = flood_lines();
  Process::Options patient;
  patient.deadline = std::chrono::seconds(240);
  const Result result = run(
      ddprun({"--nproc_per_node=8", "-t3", "--log-dir", folder.path()}, {"flood=" + std::to_string(lines)}), patient);
  REQUIRE(result.code == 0);
  const std::vector<int> ranks = {0, 1, 2, 3, 4, 5, 6, 7};
  check_flood(result.out, ranks, lines, "[default");
  check_flood(result.err, ranks, lines, "[default");
  const LogFiles files(folder.path());
  for (const int rank : ranks) {
    check_flood(files.at("attempt_0/" + std::to_string(rank) + "/stdout.log"), {rank}, lines);
    check_flood(files.at("attempt_0/" + std::to_string(rank) + "/stderr.log"), {rank}, lines);
  }
}

TEST_CASE("logs: a line of many megabytes is whole on the console", "[launcher][integration][P14]") {
  const TemporaryFolder folder;
  constexpr int kLong = 9'000'000;
  const Result result = run(ddprun(two_workers(folder) + Words{"-t1"}, {"long=" + std::to_string(kLong)}));
  const std::string line0 = "[default0]:" + std::string(kLong, '0') + "\n";
  const std::string line1 = "[default1]:" + std::string(kLong, '1') + "\n";
  CHECK((result.out == line0 + line1 || result.out == line1 + line0));
}

TEST_CASE("logs: a line of 200 MB is printed as several lines, and is whole in its file",
          "[launcher][integration][P14]") {
  const TemporaryFolder folder;
  constexpr std::size_t kLong = 200'000'000;
  const Result result =
      run(ddprun(two_workers(folder) + Words{"-t1"}, {"0:long=" + std::to_string(kLong), "0:memory", "1:flood=1000"}));
  REQUIRE(result.code == 0);
  CHECK(LogFiles(folder.path()).at("attempt_0/0/stdout.log").find('\n') == kLong);
  std::size_t zeros = 0;
  long memory = 0;
  std::string others;
  std::istringstream stream(result.out);
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind("[default0]:0", 0) == 0) {
      zeros += line.size() - 11;
      if (line.find_first_not_of('0', 11) != std::string::npos) FAIL("another line is in it");
    } else if (sscanf(line.c_str(), "[default0]:memory %ld", &memory) != 1) {
      others += line + "\n";
    }
  }
  CHECK(zeros == kLong);
  CHECK(memory > 0);
  if (!kIsSanitized) CHECK(memory < 160'000);  // KiB: at most 64 MiB wait for the console, and pieces have 16 MiB
  check_flood(others, {1}, 1000, "[default");
}

TEST_CASE("logs: a closed stdout leaves teed files whole", "[launcher][integration]") {
  const TemporaryFolder folder;
  Process::Options closed;
  closed.close_stdout = true;
  Process job(ddprun(two_workers(folder) + Words{"-t1"}, {"flood=2000"}), closed);
  CHECK(job.wait().code == 0);
  const LogFiles files(folder.path());
  check_flood(files.at("attempt_0/0/stdout.log"), {0}, 2000);
  check_flood(files.at("attempt_0/1/stdout.log"), {1}, 2000);
}

TEST_CASE("logs: a stdout on a full disk is reported once and ends the output, not the job",
          "[launcher][integration][A6]") {
  const Words job = ddprun({"--nproc_per_node=2"}, {"lines=100"});
  const Result result = run(Words{"sh", "-c", "exec \"$0\" \"$@\" > /dev/full"} + job);
  CHECK(result.code == 0);
  CHECK(result.err ==
        "ddprun: cannot write to stdout: No space left on device; the job goes on without it\n"
        "ddprun: 200 lines are missing in stdout: No space left on device\n");
}

TEST_CASE("logs: another process that holds a worker's pipe does not block ddprun", "[launcher][integration]") {
  const TemporaryFolder folder;
  Process job(ddprun({"-t1", "--log-dir", folder.path()}, {"catch=TERM", "ready", "wait"}));
  job.wait_for("ready ");
  job.wait_for("\n");
  const std::string worker = job.out().substr(job.out().find("ready ") + 6, job.out().find('\n') - 17);
  const int held = open(("/proc/" + worker + "/fd/1").c_str(), O_WRONLY);
  REQUIRE(held >= 0);
  job.signal(SIGTERM);
  const Result result = job.wait();
  CHECK(result.out == "[default0]:ready " + worker + "\n[default0]:rank 0 got SIGTERM\n");
  close(held);
}

TEST_CASE("logs: a teed stream of a job on a terminal is a pipe, and has its prefix there", "[launcher][integration]") {
  const TemporaryFolder folder;
  Process::Options terminal;
  terminal.on_terminal = true;
  const Result result = run(ddprun({"-t1", "--log-dir", folder.path()}, {"tty"}), terminal);
  CHECK(count(result.out, "[default0]:stdin tty\r\n[default0]:stdout other\r\n") == 1);
  CHECK(LogFiles(folder.path()).at("attempt_0/0/stdout.log") == "stdin tty\nstdout other\n");
}

TEST_CASE("logs: on a full disk the job goes on, with one warning, and at the end the number of lost lines",
          "[launcher][integration][A6]") {
  const TemporaryFolder folder;
  const Words job = ddprun({"--nproc_per_node=2", "-t3", "--log-dir", folder.path()}, {"flood=3000"});
  const Result result = run(with_file_system(folder.path(), "size=64k", job));
  CAPTURE(result.err.substr(0, 1000));
  CHECK(result.code == 0);
  check_flood(result.out, {0, 1}, 3000, "[default");
  CHECK(count(result.err, "ddprun: ") == 2);
  CHECK(count(result.err, " lines are missing in " + folder.path() + "/") == 1);
  CHECK(count(result.err, "stdout.log and 3 other files: No space left on device\n") == 1);
  CHECK(count(result.err, "stdout.log: No space left on device; the job goes on without it\n") +
            count(result.err, "stderr.log: No space left on device; the job goes on without it\n") ==
        1);
}

TEST_CASE("logs: if a full disk cut off what workers wrote to their own files, that is said",
          "[launcher][integration][A6]") {
  for (const char* end : {"exit=5", "exit=0"}) {
    CAPTURE(end);
    const TemporaryFolder folder;
    const Words job = ddprun({"-r3", "--log-dir", folder.path()}, {"flood=3000", end});
    const Result result = run(with_file_system(folder.path(), "size=64k", job));
    CHECK(result.code == end[5] - '0');
    CHECK(count(result.err, "ddprun: the logs in " + folder.path() + "/") == 1);
    CHECK(count(result.err, " may be cut off: No space left on device\n") == 1);
    CHECK(count(result.err, "hint: the disk with its logs takes no more (No space left") == (result.code == 0 ? 0 : 1));
  }
}

TEST_CASE("logs: if no temporary folder can be made, the job goes on without logs, with one warning",
          "[launcher][integration][A6]") {
  const TemporaryFolder folder;
  Process::Options environment;
  environment.environment["TMPDIR"] = folder.path();
  const Words job = ddprun({"-r3"}, {"say=out", "shout=err"});
  const Result result = run(with_file_system(folder.path(), "ro", job), environment);
  CHECK(result.code == 0);
  CHECK(result.out == "out\n");
  CHECK(count(result.err, "err\n") == 1);
  CHECK(count(result.err, "ddprun: ") == 1);
  CHECK(count(result.err, "Read-only file system") == 1);
}

TEST_CASE("logs: a --log-dir that cannot be written is an error before anything starts",
          "[launcher][integration][A6]") {
  const TemporaryFolder folder;
  for (const char* options : {"ro", "size=4k"}) {  // a tmpfs of one page has room for no file's content
    CAPTURE(options);
    const Words job = ddprun({"-r3", "--log-dir", folder.path() + "/logs"}, {"say=out"});
    const std::string fill =
        std::string(options) == "ro" ? "" : "head -c 4096 /dev/zero > " + folder.path() + "/full; ";
    const Result result =
        run(with_file_system(folder.path(), options, Words{"sh", "-c", fill + "exec \"$@\"", "sh"} + job));
    CHECK((result.code == 1 && result.out.empty()));
    CHECK(count(result.err, "ddprun: --log-dir " + folder.path() + "/logs: cannot write in " + folder.path()) == 1);
    CHECK(count(result.err, fill.empty() ? "Read-only file system" : "No space left on device") == 1);
    CHECK(count(result.err, "\n") == 1);
  }
}

TEST_CASE("logs: a --log-dir that is a file is refused", "[launcher][integration]") {
  const TemporaryFolder folder;
  const Result result = run(ddprun({"--log-dir", folder.write("file", "")}, {"say=out"}));
  CHECK((result.code == 1 && result.out.empty()));
  CHECK(count(result.err, "this is a file; give a folder") == 1);
}

TEST_CASE("logs: a --local-ranks-filter without a local rank of this node gets a warning", "[launcher][integration]") {
  const Result result = run(ddprun({"--nproc_per_node=2", "--local-ranks-filter=2,5"}, {"say=out"}));
  CHECK((result.code == 0 && result.out.empty()));
  CHECK(count(result.err, "--local-ranks-filter 2,5: the local ranks here are 0 to 1, so no worker's output") == 1);
  CHECK(run(ddprun({"--nproc_per_node=2", "--local-ranks-filter=1,5"}, {"say=out"})).err.empty());
}
