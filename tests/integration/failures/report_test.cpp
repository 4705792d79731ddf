// SPDX-License-Identifier: BSD-3-Clause
// What a failed job leaves to read: the report, and the error file for an outer launcher.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/integration/ddprun.hpp"
#include "tests/support/hosts.hpp"

using namespace ddp::testing;
using nlohmann::json;

namespace {

constexpr char kRecord[] =
    R"({"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "Traceback\nValueError: no\n", "timestamp": "17"}}})";

Process::Options told_to(const std::string& error_file) {
  Process::Options options;
  options.environment = {{"TORCHELASTIC_ERROR_FILE", error_file}};
  return options;
}

std::vector<std::string> shell(const std::vector<std::string>& options, const std::string& script) {
  return ddprun_raw(options + std::vector<std::string>{"--no-python", "/bin/sh", "-c", script});
}

// A memory cgroup with a limit, a child of this process's own one; removed with the object.
class MemoryCgroup {
 public:
  explicit MemoryCgroup(int megabytes) {
    namespace fs = std::filesystem;
    std::ifstream own("/proc/self/cgroup");
    for (std::string line; std::getline(own, line);) {
      const auto colon = line.rfind(':');
      const bool is_v2 = line.rfind("0::", 0) == 0;
      const bool is_v1 = line.find(":memory:") != std::string::npos;
      const std::string root = is_v1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
      const std::string path = root + line.substr(colon + 1) + "/ddprun_test_" + std::to_string(getpid());
      const std::string limit = path + (is_v1 ? "/memory.limit_in_bytes" : "/memory.max");
      std::error_code error;
      if ((!is_v1 && !is_v2) || !path_.empty() || !fs::create_directory(path, error)) continue;
      path_ = path;
      std::ofstream(limit) << megabytes << "M" << std::flush;
      std::ofstream(path + (is_v1 ? "/memory.memsw.limit_in_bytes" : "/memory.swap.max"))
          << (is_v1 ? std::to_string(megabytes) + "M" : "0") << std::flush;
      works_ = read_file(limit).find(std::to_string(std::int64_t{megabytes} << 20)) == 0;
      if (!works_) fs::remove(std::exchange(path_, ""), error);
    }
  }
  ~MemoryCgroup() {
    if (path_.empty()) return;
    // Its last processes may take a moment to leave the group; rmdir() fails with EBUSY until then.
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (rmdir(path_.c_str()) != 0 && std::chrono::steady_clock::now() < deadline) {
    }
  }
  MemoryCgroup(const MemoryCgroup&) = delete;
  MemoryCgroup& operator=(const MemoryCgroup&) = delete;

  bool works() const { return works_; }
  // Returns the command that runs `command` in the group.
  std::vector<std::string> inside(const std::vector<std::string>& command) const {
    return std::vector<std::string>{"/bin/sh", "-c", "echo $$ > \"$0\"/cgroup.procs && exec \"$@\"", path_} + command;
  }

 private:
  std::string path_;
  bool works_ = false;
};

}  // namespace

TEST_CASE("report: says what the exit code means, what to do, and quotes stderr without its escape sequences",
          "[launcher][integration]") {
  Process job(ddprun({"--nproc_per_node=2"},
                     {"1:shout=\x1b[31mOSError: [Errno 28] No space left on device\x1b[0m\x07", "1:exit=139", "wait"}));
  const Result result = job.wait();
  CHECK(result.code == 139);
  CHECK(count(result.err, "ddprun:   that is: a shell's code for a program killed by SIGSEGV: segmentation") == 1);
  CHECK(count(result.err, "ddprun:   hint: a disk is full") == 1);
  CHECK(count(result.err, "ddprun:     | OSError: [Errno 28] No space left on device\\x07\n") == 1);
  CHECK(job.left_over().empty());
}

TEST_CASE("report: has the last twenty lines of stderr, however many progress bar updates follow them",
          "[launcher][integration]") {
  const std::string script =
      "for i in $(seq 30); do echo line $i >&2; done;"
      "for i in $(seq 20000); do printf '%d of 20000\\r' $i >&2; done; exit 3";
  for (const char* where : {"-r0", "-r2"}) {  // through ddprun, or into a file that the worker writes itself
    CAPTURE(where);
    const TemporaryFolder logs;
    const std::string err = run(shell({where, "--log-dir", logs.path()}, script)).err;
    const std::string report = err.substr(err.find("failed: rank 0"));
    CHECK(count(report, "    | ") == 20);
    CHECK(count(report, "    | line 12\n") == 1);
    CHECK(count(report, "    | 20000 of 20000\n") == 1);
  }
}

TEST_CASE("report: a restart quotes the worker's last words", "[launcher][integration]") {
  const Result result = run(ddprun({"--max-restarts=1"}, {"0/0:shout=loss is NaN", "0/0:exit=3"}));
  CHECK(result.code == 0);
  CHECK(count(result.err, "restart 1 of 1: rank 0 on node ") == 1);
  CHECK(count(result.err, " exited with code 3: loss is NaN\n") == 1);
}

TEST_CASE("report: colours are for terminals, unless NO_COLOR or TERM ask for none", "[launcher][integration]") {
  const std::vector<std::string> command = ddprun({}, {"shout=words", "exit=3"});
  CHECK(count(run(command).err, "\x1b[") == 0);
  Process::Options terminal;
  terminal.on_terminal = true;
  terminal.environment = {{"TERM", "xterm"}, {"NO_COLOR", ""}};
  const std::string coloured = run(command, terminal).out;
  CHECK(count(coloured, "ddprun: \x1b[31m") == 1);
  CHECK(count(coloured, "\x1b[2m    | words\x1b[0m") == 1);
  terminal.environment["NO_COLOR"] = "1";
  CHECK(count(run(command, terminal).out, "\x1b[") == 0);
  terminal.environment = {{"TERM", "dumb"}, {"NO_COLOR", ""}};
  CHECK(count(run(command, terminal).out, "\x1b[") == 0);
}

TEST_CASE("report: --log-format json has its facts as fields", "[launcher][integration]") {
  const std::string err =
      run(ddprun({"--log-format=json", "--nproc_per_node=2"}, {"1:shout=MemoryError", "1:exit=3", "0:wait"})).err;
  const json line = json::parse(err.substr(err.find("{\"time\"")));
  const json& details = line.at("details");
  CHECK(details.at("exit_code") == 3);
  CHECK(details.at("rank") == 1);
  CHECK(details.at("stderr_tail") == json{"MemoryError"});
  CHECK(details.at("hint").get<std::string>().find("fewer or smaller workers") != std::string::npos);
  CHECK(details.at("stopped_by_ddprun") == json{0});
  CHECK(count(err, "\x1b") == 0);
}

TEST_CASE("report: many workers with huge error files full of quotes do not disturb the end of the job",
          "[launcher][integration]") {
  Process job(
      shell({"--nproc_per_node=48"}, "head -c 3000000 /dev/zero | tr '\\0' '\"' > $TORCHELASTIC_ERROR_FILE; exit 3"));
  const Result result = job.wait();
  CHECK(result.code == 3);
  CHECK(count(result.err, "bytes left out]") == 1);
  CHECK(result.err.size() < 100'000);
  CHECK(job.left_over().empty());
}

TEST_CASE("report: a pipe, a folder or /dev/zero in place of an error file does not disturb the end of the job",
          "[launcher][integration]") {
  for (const char* make : {"mkfifo", "mkdir", "ln -s /dev/zero"}) {
    CAPTURE(make);
    const Result result = run(shell({}, make + std::string(" $TORCHELASTIC_ERROR_FILE; exit 3")));
    CHECK(result.code == 3);
    CHECK(count(result.err, "its error:") == 0);
  }
}

TEST_CASE("error file: the launcher above gets the first failure's record, with its exit code",
          "[launcher][integration]") {
  const TemporaryFolder folder;
  const std::string path = folder.write("error.json", "an earlier one");
  run(ddprun({"--nproc_per_node=2"}, {"1:error=" + std::string(kRecord), "1:exit=7", "wait"}), told_to(path));
  json expected = json::parse(kRecord);
  expected["message"]["errorCode"] = 7;
  CHECK(json::parse(read_file(path)) == expected);
}

TEST_CASE("error file: the launcher above gets one of a job that no worker failed, and none of a success",
          "[launcher][integration]") {
  const TemporaryFolder folder;
  const std::string path = folder / "error.json";
  const auto message = [&] { return json::parse(read_file(path)).at("message").at("message").get<std::string>(); };
  CHECK(run(ddprun({}, {"exit=0"}), told_to(path)).code == 0);
  CHECK(run(ddprun_raw({"--no-such-option"}), told_to(path)).code == 2);
  CHECK_FALSE(std::filesystem::exists(path));

  Process stopped(ddprun({}, {"ready", "wait"}), told_to(path));
  stopped.wait_for("ready");
  stopped.signal(SIGTERM);
  CHECK(stopped.wait().code == 128 + SIGTERM);
  CHECK(count(message(), "SIGTERM received") == 1);

  CHECK(run(ddprun_raw({"--no-python", "no_such_program"}), told_to(path)).code == 127);
  CHECK(count(message(), "'no_such_program' was not found") == 1);
}

TEST_CASE("error file: if it cannot be written there is a warning, and the exit code stays",
          "[launcher][integration]") {
  const Result result = run(ddprun({}, {"exit=7"}), told_to("/proc/error.json"));
  CHECK(result.code == 7);
  CHECK(count(result.err, "cannot write /proc/error.json for the launcher that started ddprun") == 1);
}

TEST_CASE("error file: a ddprun within a ddprun is explained by the outer one's report", "[launcher][integration]") {
  Process job(ddprun_raw({"--nproc_per_node=2", DDPRUN_BINARY, "--nproc_per_node=2", FAKE_WORKER_BINARY,
                          "1:error=" + std::string(kRecord), "1:exit=7", "wait"}));
  const Result result = job.wait();
  CHECK(result.code == 7);
  const auto outer = result.err.rfind("ddprun failed: ");
  REQUIRE(outer != std::string::npos);
  CHECK(count(result.err.substr(outer), "its error:\nddprun:     | Traceback\nddprun:     | ValueError: no\n") == 1);
  CHECK(job.left_over().empty());
}

TEST_CASE("report: a worker that the kernel killed for lack of memory is reported as such",
          "[launcher][integration][P17]") {
  skip_with_sanitizer("ddprun itself needs more memory than the limit");
  const MemoryCgroup cgroup(64);
  if (!cgroup.works()) skip("no memory cgroup with a limit can be made here");
  Process job(cgroup.inside(ddprun({"--nproc_per_node=2"}, {"1:eat=200", "wait"})));
  const Result result = job.wait();
  CAPTURE(result.err);
  CHECK(result.code == 128 + SIGKILL);
  CHECK(count(result.err, "failed: rank 1 on node ") == 1);
  CHECK(count(result.err, "that is: out of memory: the kernel") == 1);
  CHECK(count(result.err, "(its limit is 64 MiB)") == 1);
  CHECK(count(result.err, "or more memory for the job") == 1);
  CHECK(job.left_over().empty());

  // A shell script is the worker, and its program is what the kernel kills.
  Words script = ddprun({"--nproc_per_node=1"}, {"eat=200"});
  script.insert(std::find(script.begin(), script.end(), std::string(FAKE_WORKER_BINARY)),
                {"sh", "-c", "\"$0\" \"$@\"; exit $?"});
  const Result below = run(cgroup.inside(script));
  CAPTURE(below.err);
  CHECK(below.code == 128 + SIGKILL);
  CHECK(count(below.err, "that is: out of memory: the kernel") == 1);

  // In a container the kernel's log is useless because its pids are those outside; the cgroup's
  // counter still works.
  Process container(cgroup.inside(std::vector<std::string>{"unshare", "--pid", "--fork", "--mount-proc"} +
                                  ddprun({"--nproc_per_node=2"}, {"1:eat=200", "wait"})));
  const Result counted = container.wait();
  if (counted.code == 128 + SIGKILL) {
    CHECK(count(counted.err, "out of memory: the kernel killed a process of this job's cgroup") == 1);
  } else {
    CHECK(count(counted.err, "unshare") >= 1);  // this machine does not allow a container
  }
  CHECK(container.left_over().empty());

  // A SIGKILL that does not come from the kernel.
  const Result other = run(cgroup.inside(ddprun({"--nproc_per_node=2"}, {"1:die=KILL", "wait"})));
  CHECK(count(other.err, "that is: killed from outside") == 1);
  CHECK(count(other.err, "out of memory") == 0);
}

TEST_CASE("report file: has the cause first, then every other failure, and names error files, which stay",
          "[launcher][integration]") {
  const TemporaryFolder folder;
  Process::Options options;
  options.environment = {{"TMPDIR", folder.path()}};
  const auto report_of = [&](const Words& more, const std::string& script, int code) {
    const std::string path = folder / "report.json";
    CHECK(run(shell(Words{"--report-file", path, "--nproc-per-node=2"} + more, script), options).code == code);
    return json::parse(read_file(path));
  };
  const json done = report_of({}, "exit 0", 0);
  CHECK((done.at("exit_code") == 0 && done.at("ranks") == json({0, 1}) && done.at("failures").empty()));
  CHECK(std::distance(std::filesystem::directory_iterator(std::string(folder.path())), {}) == 1);

  const std::string fail = "printf %s '" + std::string(kRecord) + "' >$TORCHELASTIC_ERROR_FILE; exit 7";
  const json failed = report_of({}, "if [ $RANK = 1 ]; then " + fail + "; fi; exec sleep 1000", 7);
  CHECK((failed.at("exit_code") == 7 && failed.at("reason") == failed.at("failures")[0].at("what")));
  REQUIRE(failed.at("failures").size() == 2);
  const json &cause = failed.at("failures")[0], &other = failed.at("failures")[1];
  CHECK((cause.at("rank") == 1 && cause.at("exit_code") == 7 && cause.at("stopped_by_ddprun") == false));
  CHECK(json::parse(read_file(cause.at("error_file").get<std::string>())) == json::parse(kRecord));
  CHECK((other.at("rank") == 0 && other.at("signal") == SIGTERM && other.at("stopped_by_ddprun") == true));
  CHECK(other.at("error_file").get<std::string>().empty());
}

TEST_CASE("report file: a job that a signal ends has no cause, and what is refused has no file",
          "[launcher][integration]") {
  const TemporaryFolder folder;
  Process job(shell({"--report-file", folder / "report.json"}, "echo ready; exec sleep 1000"));
  job.wait_for("ready", 1);
  job.signal(SIGTERM);
  CHECK(job.wait().code == 128 + SIGTERM);
  const json report = json::parse(read_file(folder / "report.json"));
  CHECK((report.at("exit_code") == 128 + SIGTERM && report.at("reason").get<std::string>().rfind("SIGTERM", 0) == 0));
  CHECK(report.at("failures").at(0).at("stopped_by_ddprun") == true);

  CHECK(run(ddprun_raw({"--report-file", folder / "none", "/nowhere/program"})).code == 127);
  CHECK(run(ddprun_raw({"--report-file", folder / "none", "--nnodes=0", "true"})).code == 2);
  CHECK_FALSE(std::filesystem::exists(std::string(folder / "none")));
  const Result lost = run(shell({"--report-file", "/nowhere/report"}, "exit 0"));
  CHECK((lost.code == 0 && count(lost.err, "cannot write /nowhere/report (--report-file): No such file") == 1));
}

TEST_CASE("report: a process that is ended since its worker has exited with 0 is named", "[launcher][integration]") {
  const std::string leave = "sleep 1001 & until [ \"$(cat /proc/$!/comm)\" = sleep ]; do :; done; ";
  const Result result = run(shell({}, leave + "exit 0"));
  CHECK(result.code == 0);
  CHECK(count(result.err, "(sleep 1001) still ran when worker 0 ") == 1);
  CHECK(count(run(shell({}, leave + "exit 3")).err, "still ran") == 0);
}
