// SPDX-License-Identifier: BSD-3-Clause
// ddprun --hosts: one command for many hosts. The hosts are this machine, behind a stand-in for ssh; ssh_hosts_test.cpp
// has hosts of their own with a real sshd.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "tests/integration/ddprun.hpp"
#include "tests/support/process.hpp"

using namespace ddp::testing;
using Catch::Matchers::Contains;

namespace {

// A job on hosts whose home is a folder of the test's. The program is put there as the first job would, except for
// those that show how it gets there.
class HostsJob {
 public:
  enum class Program { IsThere, IsMissing };
  explicit HostsJob(Program program = Program::IsThere) {
    if (program == Program::IsThere) {
      CHECK(run(command("a", {}, {"exit=0"}), options()).code == 0);
    }
  }

  static Words command(const std::string& hosts, const Words& more, const Words& verbs) {
    return ddprun(Words{"--hosts=" + hosts, "--launch-agent=" FAKE_SSH} + more, verbs);
  }
  Process::Options options(const std::map<std::string, std::string>& more = {}) const {
    Process::Options options;
    options.environment = more;
    options.environment["HOME"] = home_.path();
    return options;
  }
  const TemporaryFolder& home() const { return home_; }

 private:
  TemporaryFolder home_;
};

bool runs(const std::string& program) { return run({"sh", "-c", "command -v " + program}).code == 0; }

// The launch agents of a head.
std::vector<pid_t> agents_of(const Process& head) { return children_of(head.pid()); }

// Returns a list of hosts: h0, h1, ...
std::string many_hosts(int hosts) {
  std::string list;
  for (int i = 0; i < hosts; ++i) list += (i == 0 ? "h" : ",h") + std::to_string(i) + ":1";
  return list;
}

// Returns when the coordinator began the round, as its event log says.
std::chrono::milliseconds round_began(const std::string& events) {
  std::istringstream records(read_file(events));
  for (std::string record; std::getline(records, record);) {
    const auto time = record.find("\"timestamp\": ");
    if (record.find("RENDEZVOUS") == std::string::npos || time == std::string::npos) continue;
    return std::chrono::milliseconds(std::stoll(record.substr(time + 13)));
  }
  return {};
}

// Returns the launch agent of a host; 0 if there is none.
pid_t agent_of_host(const Process& head, const std::string& host) {
  for (const pid_t pid : head.left_over()) {
    const std::string words = read_file("/proc/" + std::to_string(pid) + "/cmdline");
    if (words.find(std::string(FAKE_SSH) + '\0' + host + '\0') != std::string::npos) return pid;
  }
  return 0;
}

}  // namespace

TEST_CASE("hosts: one command runs a job on all hosts, here with what it has", "[launcher][integration]") {
  const HostsJob job(HostsJob::Program::IsMissing);
  const Words command = HostsJob::command("a:2,chatty:1", {"-x", "MINE=it's \"$HOME\" `x`", "--role=r"},
                                          {"place", "env=MINE", "env=NCCL_DEBUG", "env=TORCHELASTIC_RUN_ID", "meet",
                                           "say=a  'b' \"c\" $d *", "shout=to stderr", "stdin"});
  for (const char* shell : {"sh", "bash", "csh", "tcsh", "fish", "zsh"}) {
    if (!runs(shell)) continue;
    CAPTURE(shell);
    Process head(command, job.options({{"FAKE_SSH_SHELL", shell}, {"NCCL_DEBUG", "INFO"}}));
    const Result result = head.wait();
    CAPTURE(result.out, result.err);
    CHECK(result.code == 0);
    CHECK(count(result.out, "met 3\n") == 3);
    CHECK_THAT(result.out, Contains("a: rank 1 of 3, local 1 of 2, node 0 of 2") &&
                               Contains("chatty: rank 2 of 3, local 0 of 1, node 1 of 2"));
    CHECK(count(result.out, "it's \"$HOME\" `x`") == 3);
    CHECK(count(result.out, "[NCCL_DEBUG=INFO]") == 3);
    CHECK(count(result.out, "a  'b' \"c\" $d *") == 3);
    CHECK_THAT(result.out, !Contains("Welcome") && !Contains("xxx") && !Contains("to stderr"));
    CHECK(count(result.err, "to stderr\n") == 3);
    CHECK_THAT(result.err, !Contains("may join this job"));
    CHECK(head.all_gone());
  }
  // Sent once, whole, and for nobody else.
  const auto cache = std::filesystem::path(job.home().path()) / ".cache/ddprun";
  const auto builds = std::distance(std::filesystem::directory_iterator(cache), {});
  CHECK(builds == 1);
  const auto build = std::filesystem::directory_iterator(cache)->path();
  CHECK(std::distance(std::filesystem::directory_iterator(build), {}) == 2);  // ddprun and cksum
  struct stat status = {};
  CHECK(stat((build / "ddprun").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0700);
}

TEST_CASE("hosts: a failure is reported once, and its exit code is the head's", "[launcher][integration]") {
  const HostsJob job;
  Process head(HostsJob::command("a:1,b:2", {}, {"meet", "2:exit=7", "wait"}), job.options());
  const Result result = head.wait();
  CAPTURE(result.out, result.err);
  CHECK(result.code == 7);
  CHECK(count(result.err, "failed: rank 2") == 1);
  CHECK(count(result.err, "first failure") == 1);
  CHECK(head.all_gone());
}

TEST_CASE("hosts: a host that cannot be reached is named, and no worker starts", "[launcher][integration]") {
  const HostsJob job;
  Process head(HostsJob::command("a,dead", {}, {"say=started"}), job.options());
  const Result result = head.wait();
  CAPTURE(result.out, result.err);
  CHECK(result.code == 75);
  CHECK_THAT(result.err, Contains("host dead cannot take part") && Contains("ended with exit code 255") &&
                             Contains("No route to host") && Contains("nothing was started"));
  CHECK_THAT(result.out, !Contains("started"));
  CHECK(head.all_gone());

  Process deaf(HostsJob::command("deaf", {}, {"say=started"}), job.options());
  const Result end = deaf.wait();
  CAPTURE(end.out, end.err);
  CHECK(end.code == 1);
  CHECK_THAT(end.err, Contains("its stdin ended before the header of a job (does the launch agent pass stdin on?)"));
  CHECK(deaf.all_gone());
}

TEST_CASE("hosts: what ssh says about a host comes with what to do, for all hosts at once", "[launcher][integration]") {
  const HostsJob job;
  const auto says = [&job](const std::string& words, const std::string& code) {
    const std::string program = "echo '" + words + "' >&2; exit " + code;
    return run(HostsJob::command("rude,dead", {}, {}), job.options({{"FAKE_SSH_SAYS", program}})).err;
  };
  const std::string key = says("Host key verification failed.", "255");
  CHECK_THAT(key, Contains("host rude cannot take part: " FAKE_SSH
                           " ended with exit code 255: Host key verification failed. (connect to it once by hand: "));
  CHECK_THAT(key, Contains("host dead cannot take part: "));
  CHECK_THAT(says("me@rude: Permission denied (publickey).", "255"),
             Contains(" (ssh must get there without a password"));
  CHECK_THAT(says("sh: 1: exec: ddprun: Exec format error", "126"), Contains(" (it has another kind of CPU"));
  CHECK_THAT(says("sh: 1: exec: ddprun: Permission denied", "126"), Contains("mounted with noexec?)"));
}

TEST_CASE("hosts: a host without the Python of the head's environment is named, and no other Python runs",
          "[launcher][integration]") {
  const HostsJob job;
  std::filesystem::create_directories(job.home() / "env/bin");
  std::filesystem::create_symlink(DDPRUN_BINARY, job.home() / "env/bin/ddprun");
  std::filesystem::create_symlink("/nowhere/python3", job.home() / "env/bin/python");
  write_file(job.home() / "env/pyvenv.cfg", "");
  const Words command{job.home() / "env/bin/ddprun", "--hosts=a", "--launch-agent=" FAKE_SSH, "-m", "this"};
  const Result result = run(command, job.options({{"PYTHON_EXEC", ""}}));
  CHECK(result.code == 126);
  CHECK(result.out.empty());
  CHECK_THAT(result.err, Contains("host a cannot take part: ") && Contains(job.home() / "env/bin/python"));
}

TEST_CASE("hosts: one that cannot begin ends the start for all at once, with its reason and its exit code",
          "[launcher][integration]") {
  const HostsJob job;
  Process head({DDPRUN_BINARY, "--hosts=a,nopython", "--launch-agent=" FAKE_SSH, "-m", "this"}, job.options());
  const Result result = head.wait();
  CAPTURE(result.out, result.err);
  CHECK(result.code == 127);
  CHECK(count(result.err, "ddprun: host nopython cannot take part: ") == 1);
  CHECK_THAT(result.err, Contains("/nowhere/python") && !Contains("closing the connections"));
  CHECK(result.out.empty());
  CHECK(head.all_gone());
}

TEST_CASE("hosts: the options of a host's own environment do not count, and its umask does",
          "[launcher][integration]") {
  const HostsJob job;
  Process head({"sh", "-c", "umask 027; exec \"$0\" \"$@\"", DDPRUN_BINARY, "--hosts=a:1,options:1",
                "--launch-agent=" FAKE_SSH, "sh", "-c", "echo umask $(umask)"},
               job.options());
  const Result result = head.wait();
  CAPTURE(result.out, result.err);
  CHECK(result.code == 0);
  CHECK(count(result.out, "umask 0027\n") == 2);
  CHECK(head.all_gone());
}

TEST_CASE("hosts: the report file is written where ddprun was started, once", "[launcher][integration]") {
  const HostsJob job;
  Process head(HostsJob::command("a,b", {"--report-file=/dev/stdout"}, {"meet", "1:exit=7", "wait"}), job.options());
  const Result failed = head.wait();
  CAPTURE(failed.out, failed.err);
  CHECK(failed.code == 7);
  CHECK(count(failed.out, "\"exit_code\": 7, \"reason\"") == 1);
  CHECK_THAT(failed.out, Contains("\n{\"program\""));  // no host's name stands before it
  // The first host knows only that it was stopped.
  Process lost(HostsJob::command("a,b", {"--report-file=/dev/stdout"}, {"ready", "wait"}), job.options());
  lost.wait_for("ready", 2);
  kill(agent_of_host(lost, "b"), SIGKILL);
  const Result end = lost.wait();
  CAPTURE(end.out, end.err);
  CHECK(count(end.out, "\"exit_code\": 75, \"reason\": \"host b is lost: ") == 1);
  CHECK(lost.all_gone());
  const Words none = {
      DDPRUN_BINARY, "--hosts=a,nopython", "--launch-agent=" FAKE_SSH, "--report-file=/dev/stdout", "-m", "this"};
  CHECK_THAT(run(none, job.options()).out,
             Contains("\"exit_code\": 127, \"reason\": \"host nopython cannot take part: "));
}

TEST_CASE("hosts: an sshd that turns connections away is tried again", "[launcher][integration]") {
  const HostsJob job;
  Process head(HostsJob::command("a,busy", {}, {"say=ready"}), job.options({{"FAKE_SSH_TURNS_AWAY", "2"}}));
  const Result result = head.wait();
  CAPTURE(result.out, result.err);
  CHECK(result.code == 0);
  CHECK(count(read_file(job.home() / "turned_away"), "once") == 2);
}

TEST_CASE("hosts: a signal ends a job whose hosts are turned away", "[launcher][integration]") {
  const HostsJob job;
  Process stopped(HostsJob::command("a,busy", {}, {}), job.options({{"FAKE_SSH_TURNS_AWAY", "1000"}}));
  wait_until([&] { return access((job.home() / "turned_away").c_str(), F_OK) == 0; });
  stopped.signal(SIGINT);
  const Result result = stopped.wait();
  CAPTURE(result.err);
  CHECK(result.code == 128 + SIGINT);
  CHECK(stopped.all_gone());
}

TEST_CASE("hosts: a line says that nobody reads stdout any more", "[launcher][integration]") {
  const HostsJob job;
  const Result result = run({"sh", "-c", "\"$@\" | head -1", "sh", DDPRUN_BINARY, "--hosts=a,b",
                             "--launch-agent=" FAKE_SSH, "sh", "-c", "yes | head -c 1000000"},
                            job.options());
  CHECK(count(result.out, ": y\n") == 1);
  CHECK(count(result.err, "ddprun: nobody reads stdout any more; the job goes on without it\n") == 1);
}

TEST_CASE("hosts: a program that is damaged, or that others may change, is sent again", "[launcher][integration]") {
  const HostsJob job;
  const auto cache = std::filesystem::path(job.home().path()) / ".cache/ddprun";
  const auto program = std::filesystem::directory_iterator(cache)->path() / "ddprun";
  const auto size = std::filesystem::file_size(program);
  const std::string whole = read_file(program);
  for (const std::uintmax_t left : {std::uintmax_t{0}, size / 2}) {
    std::filesystem::resize_file(program, left);
    const Result result = run(HostsJob::command("a", {}, {"say=started"}), job.options());
    CAPTURE(left, result.err);
    CHECK(result.code == 0);
    CHECK(std::filesystem::file_size(program) == size);
  }
  const auto is_sent_again = [&] {
    const Result result = run(HostsJob::command("a", {}, {"say=started"}), job.options());
    CAPTURE(result.err);
    CHECK(result.code == 0);
    const bool is_whole = read_file(program) == whole;
    CHECK(is_whole);
    const auto mode = std::filesystem::status(program).permissions();
    CHECK(mode == std::filesystem::perms::owner_all);
  };
  std::filesystem::resize_file(program, size / 2);
  std::filesystem::resize_file(program, size);  // the other half is zeros
  is_sent_again();
  for (const auto mode : {0600, 0770, 0702}) {  // the last two let others write
    std::filesystem::permissions(program, std::filesystem::perms(mode));
    is_sent_again();
  }
  // What keeps it from being written is said.
  std::filesystem::remove_all(cache.parent_path());
  write_file(cache.parent_path(), "no folder");
  CHECK_THAT(run(HostsJob::command("a", {}, {}), job.options()).err,
             Contains("it cannot make " + cache.parent_path().string() + ": ") && Contains("File exists"));
}

TEST_CASE("hosts: beside the head, ps and stacks say on which host the job is seen", "[launcher][integration]") {
  const HostsJob job;
  Process head(HostsJob::command("a,b", {}, {"ready", "wait"}), job.options());
  head.wait_for("ready", 2);
  const std::string note = "the job that ddprun (pid " + std::to_string(head.pid()) +
                           ") has started on a, b is seen there: on a run ~/.cache/ddprun/";
  const auto says = [](const Words& words) { return run(Words{DDPRUN_BINARY} + words).err; };
  CHECK_THAT(says({"ps"}), Contains("ddprun ps: " + note) && Contains("/ddprun ps\n"));
  CHECK_THAT(says({"stacks", "no-such-job"}), Contains(note) && Contains("/ddprun stacks\n"));
  head.signal(SIGKILL);
  CHECK(head.all_gone());
  CHECK_THAT(says({"ps"}), !Contains(note));  // it was left, and is known to be of a killed process
}

TEST_CASE("hosts: whatever is killed with SIGKILL, nothing is left on any host", "[launcher][integration]") {
  const HostsJob job;
  const Words command = HostsJob::command("a:2,b:2", {}, {"ready", "wait"});
  SECTION("the head") {
    Process head(command, job.options());
    head.wait_for("ready", 4);
    head.signal(SIGKILL);
    CHECK(head.all_gone());
  }
  SECTION("one launch agent") {
    Process head(command, job.options());
    head.wait_for("ready", 4);
    kill(agents_of(head).at(1), SIGKILL);
    const Result result = head.wait();
    CAPTURE(result.err);
    CHECK(result.code == 75);
    CHECK_THAT(result.err, Contains("is lost: ") && Contains("was killed by SIGKILL"));
    CHECK(count(result.err, "stopping: ") == 1);
    CHECK(head.all_gone());
  }
  SECTION("all launch agents") {
    Process head(command, job.options());
    head.wait_for("ready", 4);
    for (const pid_t agent : agents_of(head)) kill(agent, SIGKILL);
    CHECK(head.wait().code == 75);
    CHECK(head.all_gone());
  }
}

TEST_CASE("hosts: a head that does not run for longer than a node may be silent has lost its job",
          "[launcher][integration]") {
  const HostsJob job;
  Process head(HostsJob::command("a,b", {"--rdzv-conf=keep_alive_interval=2"}, {"ready", "wait"}), job.options());
  head.wait_for("ready", 2);
  const std::vector<pid_t> agents = agents_of(head);
  head.signal(SIGSTOP);
  wait_until([&] {  // the head and the agents, which nobody reaps, are left
    return head.left_over().size() == 1;
  });
  head.signal(SIGCONT);
  CHECK(head.wait().code != 0);
  CHECK(head.all_gone());
}

TEST_CASE("hosts: Ctrl-C once gives the workers time, twice kills them", "[launcher][integration]") {
  const HostsJob job;
  SECTION("once") {
    Process head(HostsJob::command("a,b", {}, {"catch=INT", "ready", "wait"}), job.options());
    head.wait_for("ready", 2);
    head.signal(SIGINT);
    const Result result = head.wait();
    CAPTURE(result.out, result.err);
    CHECK(result.code == 130);
    CHECK(count(result.out, "got SIGINT") == 2);
    CHECK(head.all_gone());
  }
  SECTION("twice") {
    Process head(HostsJob::command("a,b", {}, {"note=INT", "ready", "wait"}), job.options());
    head.wait_for("ready", 2);
    head.signal(SIGINT);
    head.wait_for("got SIGINT", 2);
    head.signal(SIGINT);
    CHECK(head.wait().code == 130);
    CHECK(head.all_gone());
  }
}

TEST_CASE("hosts: SIGUSR1 and SIGUSR2 reach each worker once, and the job goes on", "[launcher][integration]") {
  const HostsJob job;
  Process head(HostsJob::command("a,b", {}, {"note=USR1", "note=USR2", "ready", "until=USR2"}), job.options());
  head.wait_for("ready", 2);
  head.signal(SIGUSR1);
  head.wait_for("got SIGUSR1", 2);
  head.signal(SIGUSR2);
  const Result result = head.wait();
  CAPTURE(result.out, result.err);
  CHECK(result.code == 0);
  CHECK(count(result.out, "got SIGUSR1") == 2);
  CHECK(head.all_gone());
}

TEST_CASE("hosts: a hostfile, localhost, and lines of all hosts that stay whole", "[launcher][integration]") {
  const HostsJob job;
  const TemporaryFolder folder;
  const std::string file = folder.write("hosts", "localhost slots=1 # here\na slots=2\nb\n");
  Process head(ddprun({"--hostfile", file, "--exclude=b", "--launch-agent=" FAKE_SSH}, {"meet", "lines=200"}),
               job.options());
  const Result result = head.wait();
  CAPTURE(result.err);
  CHECK(result.code == 0);
  CHECK(count(result.out, "met 3\n") == 3);
  std::istringstream lines(result.out);
  int whole = 0, all = 0;
  for (std::string line; std::getline(lines, line); ++all)
    whole += line.starts_with("localhost: ") || line.starts_with("a: ");
  CHECK(whole == all);
  CHECK(all == 3 * 201);
  CHECK(head.all_gone());
}

TEST_CASE("hosts: a contradiction is refused with the line to change", "[launcher][integration]") {
  const auto refusal = [](const Words& options) {
    const Result result = run(ddprun(options, {"say=x"}));
    CHECK(result.code == 2);
    return result.err;
  };
  CHECK_THAT(refusal({"--hosts=a:2", "--nproc-per-node=3"}), Contains("--hosts gives a 2 workers"));
  CHECK_THAT(refusal({"--hosts=a,b", "--nnodes=3"}),
             Contains("--nnodes 3 does not go with a list of hosts, which has 2"));
  CHECK_THAT(refusal({"--hosts=a", "--node-rank=0"}), Contains("--node-rank does not go with a list of hosts"));
  CHECK_THAT(refusal({"--hosts=a", "--hostfile=b"}), Contains("contradict each other"));
  CHECK_THAT(refusal({"--hostfile=/no/such"}), Contains("No such file"));
  CHECK_THAT(refusal({"--include=a"}), Contains("give --hostfile FILE"));
  CHECK_THAT(refusal({"-x", "A=b"}), Contains("--hosts or --hostfile"));
  const Result missing = run(ddprun({"--hosts=a", "--launch-agent=no_such_agent"}, {}));
  CHECK(missing.code == 127);
  CHECK_THAT(missing.err, Contains("no_such_agent: not found"));
}

TEST_CASE("hosts: above 64 hosts all is as with few", "[launcher][integration]") {
  // DDPRUN_HOSTS=1000 makes it a measurement (scripts/stress/many_hosts), of the ddprun in DDPRUN_HOSTS_PROGRAM.
  const char* const number = getenv("DDPRUN_HOSTS");
  const char* const program = getenv("DDPRUN_HOSTS_PROGRAM");
  const int hosts = number ? std::stoi(number) : 70;
  const HostsJob job;
  const TemporaryFolder folder;
  Process::Options options = job.options();
  if (number) options.deadline = std::chrono::seconds(600);
  const auto command = [&](const Words& more, const Words& verbs) {
    // It costs little: one shell, in the place of ssh, a login shell and the shell that the line starts.
    Words words = ddprun(Words{"--launch-agent=sh -c 'eval \"eval ${2#exec sh -c }\"' sh"} + more, verbs);
    if (program) words[0] = program;
    return words;
  };
  if (program) CHECK(run(command({"--hosts=a"}, {"exit=0"}), options).code == 0);  // which puts it there
  const Words more = {"--hosts=" + many_hosts(hosts), "--event-log-file=" + (folder / "events")};
  const auto began = std::chrono::system_clock::now();
  Process head(command(more, {"meet", "note=USR2", "note=USR1", "ready", "until=USR1", "2:exit=7", "wait"}), options);
  head.wait_for("ready", hosts);
  CHECK(agents_of(head).size() == static_cast<std::size_t>(hosts));
  if (number) {
    const auto since = [began](std::chrono::milliseconds time) {
      return std::to_string((time - std::chrono::ceil<std::chrono::milliseconds>(began.time_since_epoch())).count());
    };
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    std::cout << hosts << " hosts: all are in the round after " << since(round_began(folder / "events"))
              << " ms, all workers have met and run after "
              << since(std::chrono::duration_cast<std::chrono::milliseconds>(now)) << " ms, the head has "
              << agents_of(head).size() << " connections\n";
  }
  head.signal(SIGUSR2);
  head.wait_for("got SIGUSR2", hosts);  // one that fails before has the others stopped
  head.signal(SIGUSR1);
  const Result result = head.wait();
  CAPTURE(result.out, result.err);
  CHECK(result.code == 7);
  CHECK(count(result.out, "met " + std::to_string(hosts) + "\n") == hosts);
  CHECK(count(result.out, "h2: met ") == 1);
  CHECK(count(result.out, "got SIGUSR2") == hosts);
  CHECK(count(result.err, "first failure: rank 2 ") == 1);
  CHECK(head.all_gone());
}

TEST_CASE("hosts: with a restart left a host that dies is started again, and again", "[launcher][integration]") {
  const HostsJob job;
  // The first life of each worker takes its time to end, so that the new life of a host meets the old one.
  const std::string program =
      "trap 'sleep 1; exit' TERM; echo life $TORCHELASTIC_RESTART_COUNT of $WORLD_SIZE; "
      "printf 'no end'; [ $TORCHELASTIC_RESTART_COUNT = 2 ] || { sleep 1000 & wait; }";
  Words command = {DDPRUN_BINARY, "--hosts=" + many_hosts(5), "--launch-agent=" FAKE_SSH, "--max-restarts=2"};
  Process head(command + Words{"sh", "-c", program}, job.options());
  head.wait_for("life 0 of 5", 5);
  kill(agent_of_host(head, "h3"), SIGKILL);
  head.wait_for("life 1 of 5", 5);
  kill(agent_of_host(head, "h3"), SIGKILL);
  const Result result = head.wait();
  CAPTURE(result.out, result.err);
  CHECK(result.code == 0);
  CHECK_THAT(result.err,
             Contains("host h3 is lost: " FAKE_SSH " was killed by SIGKILL; starting ddprun there again\n"));
  CHECK_THAT(result.err, !Contains("host h4 is lost"));
  for (const char* life : {"life 0", "life 1", "life 2"}) {
    CHECK(count(result.out, std::string("h3: ") + life) == 1);
    CHECK(count(result.out, std::string("h4: ") + life) == 1);
  }
  CHECK(count(result.out, "life 2 of 5\n") == 5);
  CHECK(count(result.out, "no endh") == 0);  // lines of two lives are two lines
  CHECK(count(result.err, "stopping: node ") == 2);
  CHECK(count(result.err, "restart 1 of 2: ") == 1);
  CHECK(count(result.err, "restart 2 of 2: ") == 1);
  CHECK(head.all_gone());
}

TEST_CASE("hosts: a job that waits for a lost host ends with a signal, and once no restart is left",
          "[launcher][integration]") {
  const HostsJob job;
  const TemporaryFolder folder;
  const Process::Options options = job.options({{"FAKE_SSH_GATE", folder / "gate"}});
  const Words command = HostsJob::command("a:1,gone:1", {"--max-restarts=1"}, {"ready", "wait"});
  Process spent(command, options);
  spent.wait_for("ready", 2);
  kill(agent_of_host(spent, "gone"), SIGKILL);
  spent.wait_for("ready", 4);
  kill(agent_of_host(spent, "gone"), SIGKILL);
  const Result result = spent.wait();
  CAPTURE(result.out, result.err);
  CHECK(result.code == 75);
  CHECK(count(result.err, "fake_worker stopped: ") == 1);
  CHECK(spent.all_gone());

  Process stopped(command, options);
  stopped.wait_for("ready", 2);
  write_file(folder / "gate", "");  // from now on there is no route to it
  kill(agent_of_host(stopped, "gone"), SIGKILL);
  stopped.wait_for("host gone cannot be started again yet: " FAKE_SSH
                   " ended with exit code 255: ssh: connect to host gone");
  stopped.signal(SIGTERM);
  CHECK(stopped.wait().code == 143);
  CHECK(stopped.all_gone());
}

TEST_CASE("hosts: a host that dies before the job begins is named, and started again", "[launcher][integration]") {
  const HostsJob job;
  const TemporaryFolder folder;
  Process head(HostsJob::command("a:1,b:1,slow:1", {}, {"meet"}), job.options({{"FAKE_SSH_GATE", folder / "gate"}}));
  head.wait_for("waiting for host slow");  // the others are ready
  kill(agent_of_host(head, "b"), SIGKILL);
  head.wait_for("starting ddprun on host b again: " FAKE_SSH " was killed by SIGKILL");
  write_file(folder / "gate", "");
  const Result result = head.wait();
  CAPTURE(result.out, result.err);
  CHECK(result.code == 0);
  CHECK(count(result.out, "met 3\n") == 3);
  CHECK(head.all_gone());
}
