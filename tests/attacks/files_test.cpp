// SPDX-License-Identifier: BSD-3-Clause
// Other users of the same machine, who read what they may read and write in folders that are open to
// all.
#include <signal.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/integration/ddprun.hpp"

using namespace ddp::testing;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

// Returns a command that runs with the umask 0, under which everything is open that its author did
// not close.
Words openly(const Words& command) { return Words{"sh", "-c", "umask 0 && exec \"$@\"", "sh"} + command; }

unsigned mode_of(const std::string& path) {
  struct stat status = {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  return status.st_mode & 07777;
}

Words paths_in(const std::string& folder) {
  Words paths;
  for (const auto& each : fs::directory_iterator(folder)) paths.push_back(each.path().string());
  return paths;
}

}  // namespace

TEST_CASE("other users: they see nothing of a job's temporary files, logs and error files", "[attacks][integration]") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "tmp");
  fs::create_directory(folder / "logs");
  const bool has_logs = GENERATE(false, true);
  const std::string place = has_logs ? folder / "logs" : folder / "tmp";
  Words options = {"--nproc-per-node=2", "--no-python"};
  if (has_logs) options = options + Words{"--log-dir=" + place, "--redirects=3"};
  Process job(openly(ddprun(options, {"note=USR1", "say=up", "shout=up", "until=USR1", "error=broken", "exit=3"})),
              {.environment = {{"TMPDIR", folder / "tmp"},
                               {"TORCHELASTIC_ENABLE_FILE_TIMER", "1"},
                               {"TORCHELASTIC_ERROR_FILE", folder / "error.json"}}});
  const auto has_begun = [&](const std::string& local_rank) {
    if (paths_in(place).empty()) return false;
    const std::string log = paths_in(place).at(0) + "/attempt_0/" + local_rank + "/stdout.log";
    return fs::exists(log) && read_file(log).find("up") != std::string::npos;
  };
  if (has_logs) wait_until([&] { return has_begun("0") && has_begun("1"); });
  if (!has_logs) job.wait_for("up", 2);
  CHECK_FALSE(paths_in(place).empty());
  for (const std::string& path : paths_in(place)) {
    INFO(path);
    CHECK((mode_of(path) & 077) == 0);
  }
  for (const std::string& path : paths_in(folder / "tmp")) {  // the timers' FIFO is among them
    INFO(path);
    CHECK((mode_of(path) & 077) == 0);
  }
  tell_workers(job);
  CHECK(job.wait().code == 3);
  CHECK(mode_of(folder / "error.json") == 0600);
  CHECK(job.left_over().empty());
}

TEST_CASE("other users: links that they plant beside the error file are not written through",
          "[attacks][integration]") {
  const TemporaryFolder folder;
  const std::string victim = folder.write("victim", "precious");
  Process job(ddprun({}, {"note=USR1", "say=up", "until=USR1", "exit=3"}),
              {.environment = {{"TORCHELASTIC_ERROR_FILE", folder / "error.json"}}});
  job.wait_for("up");
  for (const pid_t pid : {job.pid(), keeper_of(job), agent_of(job)}) {
    fs::create_symlink(victim, folder / ("error.json.tmp." + std::to_string(pid)));
  }
  tell_workers(job);
  CHECK(job.wait().code == 3);
  CHECK(read_file(victim) == "precious");
  CHECK_THAT(read_file(folder / "error.json"), Contains("errorCode"));
  CHECK(job.left_over().empty());
}

TEST_CASE("worker: an error file nested 100,000 deep ends neither its agent nor the report", "[attacks][integration]") {
  const TemporaryFolder folder;
  const std::string error =
      folder.write("deep.json", R"({"message": {"message": "x", "extraInfo": {"timestamp": "17"}, "more": )" +
                                    std::string(100'000, '[') + std::string(100'000, ']') + "}}");
  const std::string script = "cp " + error + " $TORCHELASTIC_ERROR_FILE && exit 3";
  const Result result = run(ddprun_raw({"--no-python", "sh", "-c", script}));
  CHECK(result.code == 3);
  CHECK_THAT(result.err, Contains("rank 0 on node ") && Contains("exited with code 3"));
}

TEST_CASE("worker: a flight recorder nested 500,000 deep ends neither its agent nor the report",
          "[attacks][integration]") {
  const TemporaryFolder folder;
  const std::string deep = folder.write("deep.json", R"({"groups": [{"operations": [], "name": )" +
                                                         std::string(500'000, '[') + std::string(500'000, ']') + "}]}");
  Process job(ddprun({"--nproc-per-node=1", "--log-dir=" + (folder / "logs")},
                     {"note=USR1", "say=up", "until=USR1", "exit=3"}));
  job.wait_for("up");
  const std::string logs = paths_in(folder / "logs").at(0);
  fs::copy(deep, logs + "/flight_recorder_rank0.json");
  const Result report = run(ddprun_raw({"report", std::to_string(job.pid())}));
  CHECK_THAT(report.out, Contains("rank 0: its file is no flight recorder's"));
  tell_workers(job);
  CHECK(job.wait().code == 3);
  CHECK_THAT(read_file(logs + "/report.txt"), Contains("rank 0: its file is no flight recorder's"));
}

TEST_CASE("files and options: what an error quotes of them does nothing to a terminal", "[attacks][integration]") {
  const TemporaryFolder folder;
  const std::string escapes =
      "\x1b]0;title\a\x1b[2J\xc2\x9b"
      "2J\xe2\x80\xae";
  const std::string file = folder.write("file", escapes + "=b c\n");
  for (const Words& words : std::vector<Words>{
           {"--hosts=" + escapes, "true"},
           {"--hostfile=" + file, "true"},
           {"--rdzv-backend=c10d", "--nnodes=1:2", "--rdzv-endpoint=127.0.0.1:0", "--topology=" + file, "true"},
           {"stop", escapes},
           {"--" + escapes, "true"}}) {
    CAPTURE(words);
    const Result refused = run(ddprun_raw(words));
    CHECK(refused.code > 0);
    CHECK_THAT(refused.err, !Contains("\x1b") && !Contains("\xc2\x9b") && !Contains("\xe2\x80\xae"));
    CHECK_THAT(refused.err, Contains("ddprun"));
  }
}

TEST_CASE("other users: a library that they left in the working directory is not loaded", "[attacks][integration]") {
  const TemporaryFolder folder;
  for (const std::string name : {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libgloo.so.0"}) {
    folder.write(name, "not a library");
  }
  // ldd shows what the loader would take.
  for (const std::string file : {DDPRUN_BINARY, DDP_STORE_BINARY, FAKE_WORKER_BINARY, LIBDDP, LIBDDP_GLOO}) {
    INFO(file);
    const Result result = run({"sh", "-c", "cd \"$0\" && ldd \"$1\"", folder.path(), file});
    INFO(result.out << result.err);
    CHECK(result.code == 0);
    CHECK(count(result.out, " => ./") == 0);
    CHECK(count(result.out, " => " + folder.path()) == 0);
  }
  CHECK(run({"sh", "-c", "cd \"$0\" && exec \"$1\" --help", folder.path(), DDP_STORE_BINARY}).code == 0);
}
