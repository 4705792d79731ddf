// SPDX-License-Identifier: BSD-3-Clause
// The file timer of torch.distributed.elastic.timer: TORCHELASTIC_ENABLE_FILE_TIMER and TORCHELASTIC_TIMER_FILE.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>

#include "tests/integration/ddprun.hpp"

using namespace ddp::testing;

namespace {

Process::Options with_timer(const std::string& file, const std::string& enabled = "1") {
  Process::Options options;
  options.environment = {{"TORCHELASTIC_ENABLE_FILE_TIMER", enabled}, {"TORCHELASTIC_TIMER_FILE", file}};
  return options;
}

Process::Options in_folder(const std::string& folder, const std::string& enabled) {
  Process::Options options;
  options.environment = {{"TORCHELASTIC_ENABLE_FILE_TIMER", enabled}, {"TMPDIR", folder}};
  return options;
}

bool exists(const std::string& path) { return std::filesystem::exists(path); }

std::vector<std::string> timer_files(const std::string& folder) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("watchdog_timer_")) found.push_back(entry.path());
  }
  return found;
}

constexpr char kExpired[] = "the timer of scope \"step\" expired (torch.distributed.elastic.timer)";

}  // namespace

TEST_CASE("file timer: a worker whose timer expires is killed, and the report names the scope", "[integration]") {
  const TemporaryFolder folder;
  Process job(ddprun({"--nproc-per-node", "2"}, {"1:timer=step,0.3", "wait"}), with_timer(folder / "timer"));
  const Result result = job.wait();
  CHECK(result.code == 128 + SIGKILL);
  CHECK(count(result.err, std::string(kExpired) + ": sent SIGKILL\n") == 1);
  CHECK(count(result.err, "failed: rank 1 on node ") == 1);
  CHECK(count(result.err, "that is: ddprun ended it because its timer had expired") == 1);
  CHECK(count(result.err, "hint: what it did in this scope took longer than the program allows") == 1);
  CHECK(count(result.err, std::string("    | ") + kExpired + "\n") == 1);
  CHECK(count(result.err, "lack of memory") == 0);
  CHECK_FALSE(exists(folder / "timer"));
  CHECK(job.all_gone());
}

TEST_CASE("file timer: bad lines and released timers harm nobody, and a restart has timers of its own",
          "[integration]") {
  const TemporaryFolder folder;
  // In the second round rank 0 waits for a timer of its own; its other one of the first round expires meanwhile.
  Process job(ddprun({"--nproc-per-node", "2", "--max-restarts", "2"},
                     {"0/0:timer_line=this is not JSON", "0/0:timer_line={\"pid\": 1}", "0/0:timer=other,0.6",
                      "0/0:timer=free,0.1", "0/0:release=free", "1/0:timer=step,0.3", "0/0:wait", "1/0:wait",
                      "0/1:timer=step,0.5", "0/1:wait", "1/1:wait", "0:timer=late,3600", "say=ran"}),
              with_timer(folder / "timer"));
  const Result result = job.wait();
  CHECK(result.code == 0);
  CHECK(count(result.err, "is no request of torch.distributed.elastic.timer is ignored: this is not JSON\n") == 1);
  CHECK(count(result.err, "is no request of") == 1);
  CHECK(count(result.err, std::string(kExpired) + ": sent SIGKILL\n") == 2);
  CHECK(count(result.err, ": sent ") == 2);
  CHECK(count(result.err, "restart 1 of 2: rank 1 on node ") == 1);
  CHECK(count(result.err, "restart 2 of 2: rank 0 on node ") == 1);
  CHECK(count(result.err, std::string("was killed by SIGKILL: ") + kExpired + "\n") == 2);
  CHECK(count(result.out, "ran") == 2);
  CHECK_FALSE(exists(folder / "timer"));
  CHECK(job.all_gone());
}

TEST_CASE("file timer: it kills no process that is not of the job", "[integration]") {
  const TemporaryFolder folder;
  Process stranger({FAKE_WORKER_BINARY, "ready", "until=TERM"});
  stranger.wait_for("ready");
  const std::string pid = std::to_string(stranger.pid());
  Process job(
      ddprun({}, {"timer_line={\"pid\": " + pid + ", \"scope_id\": \"step\", \"expiration_time\": 1, \"signal\": 9}",
                  "note=TERM", "ready", "until=TERM", "exit=5"}),
      with_timer(folder / "timer"));
  job.wait_for("it is no process of this job, so it is left alone");
  job.wait_for("ready");
  CHECK(state_of(stranger.pid()) == 'S');
  job.signal(SIGTERM);
  CHECK(job.wait().code == 128 + SIGTERM);
  stranger.signal(SIGKILL);
  stranger.wait();
}

TEST_CASE("file timer: a worker that was asked to end has its grace, whatever its timers", "[integration]") {
  const TemporaryFolder folder;
  // It is stopped for longer than its timer runs, and then continues.
  Process job(ddprun({}, {"note=TERM", "timer=step,1", "ready", "until=TERM", "nap=1200", "say=saved", "exit=3"}),
              with_timer(folder / "timer"));
  job.wait_for("ready");
  job.signal(SIGTERM);
  const Result result = job.wait();
  CHECK(count(result.out, "saved") == 1);
  CHECK(count(result.err, kExpired) == 0);
  CHECK(job.all_gone());
}

TEST_CASE("file timer: nothing is made unless TORCHELASTIC_ENABLE_FILE_TIMER is 1", "[integration]") {
  const TemporaryFolder folder;
  for (const char* enabled : {"0", "", "true"}) {
    CAPTURE(enabled);
    Process job(ddprun({}, {"env=TORCHELASTIC_TIMER_FILE", "ready", "wait"}), in_folder(folder.path(), enabled));
    job.wait_for("ready");
    CHECK(count(job.out(), "[TORCHELASTIC_TIMER_FILE=(unset)]") == 1);
    CHECK(timer_files(folder.path()).empty());
    job.signal(SIGTERM);
    job.wait();
  }
}

TEST_CASE(
    "file timer: the FIFO has a name of its own in TMPDIR and is removed, also if the agent or the keeper is killed",
    "[integration]") {
  const TemporaryFolder folder;
  for (const std::string killed : {"agent", "keeper", "nothing"}) {
    CAPTURE(killed);
    Process job(ddprun({"--nproc-per-node", "2"}, {"env=TORCHELASTIC_TIMER_FILE", "ready", "wait"}),
                in_folder(folder.path(), "1"));
    job.wait_for("ready", 2);
    const std::vector<std::string> files = timer_files(folder.path());
    REQUIRE(files.size() == 1);
    CHECK(count(job.out(), "[TORCHELASTIC_TIMER_FILE=" + files[0] + "]") == 2);
    struct stat status = {};
    CHECK((stat(files[0].c_str(), &status) == 0 && S_ISFIFO(status.st_mode) && (status.st_mode & 0777) == 0600));
    if (killed == "nothing") {
      job.signal(SIGTERM);
    } else {
      kill(killed == "agent" ? agent_of(job) : keeper_of(job), SIGKILL);
    }
    job.wait();
    CHECK(job.all_gone());
    CHECK(std::filesystem::is_empty(folder.path()));
  }
}

TEST_CASE(
    "file timer: an old FIFO is replaced, but a file, another job's FIFO and a folder that is not there are refused",
    "[integration]") {
  const TemporaryFolder folder;
  REQUIRE(mkfifo((folder / "old").c_str(), 0600) == 0);
  CHECK(run(ddprun({}, {"timer=step,3600"}), with_timer(folder / "old")).code == 0);
  CHECK_FALSE(exists(folder / "old"));

  const auto refused = [](const std::string& path) {
    const Result result = run(ddprun({}, {"say=started"}), with_timer(path));
    CHECK(result.code == 1);
    CHECK(result.out.empty());
    CHECK(count(result.err, "TORCHELASTIC_TIMER_FILE " + path + ": ") == 1);
    return result.err;
  };
  const std::string file = folder.write("model.pt", "weights");
  CHECK_THAT(refused(file), Catch::Contains("this exists and is no FIFO"));
  CHECK(read_file(file) == "weights");
  CHECK_THAT(refused(folder / "none/timer"), Catch::Contains("cannot make a FIFO: No such file or directory"));

  Process job(ddprun({}, {"ready", "wait"}), with_timer(folder / "used"));
  job.wait_for("ready");
  CHECK_THAT(refused(folder / "used"), Catch::Contains("another job uses it"));
  CHECK(exists(folder / "used"));
  job.signal(SIGTERM);
  job.wait();
}
