// SPDX-License-Identifier: BSD-3-Clause
// How real processes find each other: by URL, started by srun or mpirun, on one host and on several. Each prints its
// rank once it has exchanged something with all the others.
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/net/listen.hpp"
#include "rendezvous/store/server.hpp"
#include "rendezvous/store/tcp_store.hpp"
#include "tests/runtime/job/job.hpp"
#include "tests/support/hosts.hpp"
#include "tests/support/ports.hpp"
#include "tests/support/process.hpp"

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using ddp::rendezvous::StoreServer;
using ddp::rendezvous::TcpStore;
using ddp::testing::free_port;
using ddp::testing::Hosts;
using ddp::testing::Process;
using ddp::testing::read_file;
using ddp::testing::Result;
using ddp::testing::run;
using ddp::testing::skip;
using ddp::testing::TemporaryFolder;
using ddp::testing::wait_until;
using Variables = std::map<std::string, std::string>;
using Words = std::vector<std::string>;

extern char** environ;

namespace {

// Variables that describe a job are kept from the processes that the test starts.
void forget_own_job() {
  Words names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    names.push_back(text.substr(0, text.find('=')));
  }
  for (const std::string& name : names) {
    if (ddp::test::describes_a_job(name)) unsetenv(name.c_str());
  }
}

// Processes of one job, each started on the host and with the settings that the test gives.
class Ranks {
 public:
  Ranks() { forget_own_job(); }

  Process& start(const Words& arguments, const Variables& environment = {}, const Hosts* hosts = nullptr,
                 int host = 0) {
    Words command = {INIT_WORKER};
    command.insert(command.end(), arguments.begin(), arguments.end());
    Process::Options options;
    options.environment = environment;
    processes_.push_back(std::make_unique<Process>(hosts != nullptr ? hosts->on(host, command) : command, options));
    return *processes_.back();
  }

  // Waits for all processes; each must have met all the others.
  void all_meet(const std::string& of_each = ", restart 0, ") {
    const auto size = static_cast<int>(processes_.size());
    const std::string n = std::to_string(size), sum = std::to_string(size * (size + 1) / 2);
    for (int rank = 0; rank < size; ++rank) {
      const Result ended = processes_[static_cast<std::size_t>(rank)]->wait();
      INFO(ended.err);
      CHECK(ended.code == 0);
      CHECK_THAT(ended.out, StartsWith("rank " + std::to_string(rank) + " of " + n + ","));
      CHECK_THAT(ended.out, Contains(of_each) && Contains(", sum " + sum + "\n"));
    }
    CHECK(none_left());
  }

  bool none_left() const {
    for (const auto& process : processes_) {
      if (!process->all_gone()) return false;
    }
    return true;
  }

 private:
  std::vector<std::unique_ptr<Process>> processes_;
};

std::string url(const std::string& place, int rank, int size) {
  return "init_method=" + place + "?rank=" + std::to_string(rank) + "&world_size=" + std::to_string(size);
}

std::string tcp(const std::string& host, int port) { return "tcp://" + host + ":" + std::to_string(port); }

}  // namespace

// ---- URLs ----

TEST_CASE("init: ranks meet at a store that rank 0 hosts where tcp:// says", "[runtime][integration]") {
  const std::string place = tcp(GENERATE("127.0.0.1", "localhost", "[::1]"), free_port());
  Ranks ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.start({url(place, rank, 3)});
  ranks.all_meet("local rank 0 of 1, restart 0");
}

TEST_CASE("init: arguments take precedence over the URL, and the URL over the environment", "[runtime][integration]") {
  const std::string place = tcp("127.0.0.1", free_port());
  const Variables wrong = {{"RANK", "7"}, {"WORLD_SIZE", "9"}, {"LOCAL_RANK", "5"}, {"LOCAL_WORLD_SIZE", "6"}};
  const Words local = {"local_rank=1", "local_world_size=4"};
  Ranks ranks;
  ranks.start({url(place, 0, 3), local[0], local[1]}, wrong);
  ranks.start({url(place, 8, 9), "rank=1", "world_size=3", local[0], local[1]}, wrong);
  ranks.start({"init_method=" + place, local[0], local[1]}, {{"RANK", "2"}, {"WORLD_SIZE", "3"}});
  ranks.all_meet("local rank 1 of 4");
}

TEST_CASE("init: ranks meet in a file, which is gone when they have left", "[runtime][integration]") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "store";
  Ranks ranks;
  for (int rank = 0; rank < 4; ++rank) ranks.start({url("file://" + file.string(), rank, 4)});
  ranks.all_meet();
  CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE("init: a file left over from an earlier run is refused by name", "[runtime][integration]") {
  const TemporaryFolder folder;
  const std::string file = folder / "store";
  Ranks ranks;
  Process& killed = ranks.start({url("file://" + file, 0, 2)});
  const std::string pid = std::to_string(killed.pid());
  wait_until([&] { return std::filesystem::exists(file) && read_file(file).find("joined/0") != std::string::npos; });
  killed.signal(SIGKILL);
  CHECK(killed.wait().code == 128 + SIGKILL);
  const Result refused = ranks.start({url("file://" + file, 0, 2)}).wait();
  CHECK(refused.code == 1);
  CHECK_THAT(refused.out, Contains("error: 5 world: rank 0 is taken by pid " + pid + " on "));
  CHECK_THAT(refused.out, Contains("at the file " + file +
                                   ": two processes were given the same rank, or the file is "
                                   "left over from an earlier run (remove it"));
  CHECK(ranks.none_left());
}

TEST_CASE("init: a second process with the same rank gets an error that names the first", "[runtime][integration]") {
  StoreServer store({"127.0.0.1"}, 0);
  const Variables job = {{"RANK", "1"},
                         {"WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "127.0.0.1"},
                         {"MASTER_PORT", std::to_string(store.port())},
                         {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  Ranks ranks;
  const pid_t first = ranks.start({}, job).pid();
  TcpStore("127.0.0.1", store.port(), ddp::testing::kDeadline).get("ddp/0/world/joined/1");
  const Result second = ranks.start({}, job).wait();
  CHECK(second.code == 1);
  CHECK_THAT(second.out, Contains("error: 5 world: rank 1 is taken by pid " + std::to_string(first) + " on "));
}

TEST_CASE("init: ranks meet in a store that the program has opened, which may go once they have met",
          "[runtime][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  const TemporaryFolder folder;
  const std::string store = GENERATE("tcp_store", "file_store");
  const std::string place = store == "tcp_store" ? std::to_string(server.port()) : folder.path() + "/store";
  Ranks ranks;
  for (const char* rank : {"0", "1"}) ranks.start({store + "=" + place, std::string("rank=") + rank, "world_size=2"});
  ranks.all_meet("");
}

TEST_CASE("init: sessions with names meet at one store, whatever other sessions their ranks have",
          "[runtime][integration]") {
  forget_own_job();
  StoreServer server({"127.0.0.1"}, 0);
  const std::string store = "tcp_store=" + std::to_string(server.port());
  Process first({INIT_WORKER, store, "named=a:0"});
  Process second({INIT_WORKER, store, "named=a:1,b:0"});
  Process third({INIT_WORKER, store, "named=b:1"});
  CHECK(first.wait().out == "rank 0 of 2, sum 3\n");
  CHECK(second.wait().out == "rank 1 of 2, sum 3\nrank 0 of 2, sum 3\n");
  CHECK(third.wait().out == "rank 1 of 2, sum 3\n");
}

TEST_CASE("init: a store that no other process finds, or that says not who the ranks are, is refused",
          "[runtime][integration]") {
  forget_own_job();
  const Result alone = run({INIT_WORKER, "store_of_one=", "rank=0", "world_size=2"});
  CHECK_THAT(alone.out, Contains("hash store: it is only in this process"));
  const Result nobody = run({INIT_WORKER, "store_of_one="});
  CHECK_THAT(nobody.out, Contains("give rank and world_size with it"));
  const Result both = run({INIT_WORKER, "store_of_one=", "init_method=env://", "rank=0", "world_size=2"});
  CHECK_THAT(both.out, Contains("either init_method or a store, not both"));
}

TEST_CASE("init: a worker that sets a port of its own meets the others there, and rank 0 hosts the store",
          "[runtime][integration]") {
  const std::string launchers = std::to_string(free_port()), own = std::to_string(free_port());
  Ranks ranks;
  for (const char* rank : {"0", "1"}) {
    ranks.start({}, {{"RANK", rank},
                     {"WORLD_SIZE", "2"},
                     {"MASTER_ADDR", "localhost"},
                     {"MASTER_PORT", own},
                     {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                     {"DDPRUN_STORE_PORT", launchers}});
  }
  ranks.all_meet();
}

TEST_CASE("init: a store of another launcher within ddprun's job is used, though ddprun hosts one elsewhere",
          "[runtime][integration]") {
  StoreServer server({"127.0.0.1"}, 0);
  Ranks ranks;
  for (const char* rank : {"0", "1"}) {
    ranks.start({}, {{"RANK", rank},
                     {"WORLD_SIZE", "2"},
                     {"MASTER_ADDR", "127.0.0.1"},
                     {"MASTER_PORT", std::to_string(server.port())},
                     {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                     {"DDPRUN_STORE_PORT", std::to_string(free_port())}});
  }
  ranks.all_meet();
}

TEST_CASE("init: a process joins at the same place repeatedly, and twice at a time", "[runtime][integration]") {
  const std::string place = tcp("127.0.0.1", free_port());
  const std::string how = GENERATE("sessions=20", "together");
  Ranks ranks;
  for (int rank = 0; rank < 2; ++rank) ranks.start({url(place, rank, 2), how});
  ranks.all_meet();
}

TEST_CASE("init: missing ranks are named, wherever the ranks meet", "[runtime][integration]") {
  const TemporaryFolder folder;
  const bool in_file = GENERATE(false, true);
  const std::string place = in_file ? "file://" + (folder / "store") : tcp("127.0.0.1", free_port());
  Ranks ranks;
  Process& first = ranks.start({url(place, 0, 3), "init_timeout=1500"});
  ranks.start({url(place, 1, 3), "init_timeout=1500"});
  const Result ended = first.wait();
  CHECK(ended.code == 1);
  CHECK_THAT(ended.out, StartsWith("error: 2 world: connecting rank 0 of 3 to the others: not done in 1.5 s, rank ") &&
                            Contains("2 never joined"));
  Ranks others;
  const Result alone = others.start({url("file://" + (folder / "other"), 1, 2), "init_timeout=1000"}).wait();
  CHECK_THAT(alone.out, Contains("error: 2 world: rank 0 of 2 did not come to the file " + (folder / "other") +
                                 " within 1 s (was it started"));
}

TEST_CASE("init: an invalid argument is an error that names it", "[runtime][integration]") {
  Ranks ranks;
  const auto error = [&](const Words& arguments) { return ranks.start(arguments).wait().out; };
  CHECK_THAT(error({"init_method=mpi://"}), StartsWith("error: 1 init_method \"mpi://\": expected env://, tcp://"));
  CHECK_THAT(error({"init_method=tcp://a:1", "rank=2", "world_size=2"}),
             StartsWith("error: 1 the argument rank is \"2\": expected a whole number from 0 to 1"));
  CHECK_THAT(error({"init_method=tcp://a:1", "world_size=-1"}),
             StartsWith("error: 1 the argument world_size is \"-1\""));
  CHECK_THAT(error({"backend=gpu:nccl"}), StartsWith("error: 1 backend \"gpu:nccl\": \"gpu\" is neither cpu nor cuda"));
}

// ---- srun ----

namespace {

// A job whose derived port is free now, since a port that is taken would fail these tests for another reason.
int free_slurm_job() {
  for (int job = static_cast<int>(getpid()); true; ++job) {
    try {
      ddp::rendezvous::listen_on({"0.0.0.0"}, static_cast<std::uint16_t>(20000 + job * 16 % 12000));
      return job;
    } catch (const ddp::rendezvous::AddressInUse&) {
    }
  }
}

// The variables that srun sets for a task of step 0.
Variables srun(int job, int rank, int size, const std::string& nodes, int node = 0, const std::string& tasks = "") {
  const auto text = [](int n) { return std::to_string(n); };
  return {{"SLURM_JOB_ID", text(job)},          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", text(rank)},         {"SLURM_NTASKS", text(size)},
          {"SLURM_STEP_NUM_TASKS", text(size)}, {"SLURM_LOCALID", text(node == 0 ? rank : rank - 2)},
          {"SLURM_NODEID", text(node)},         {"SLURM_STEP_TASKS_PER_NODE", tasks.empty() ? text(size) : tasks},
          {"SLURM_STEP_NODELIST", nodes}};
}

}  // namespace

TEST_CASE("init: the tasks of an srun step are a job", "[runtime][integration]") {
  const int job = free_slurm_job();
  Ranks ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.start({}, srun(job, rank, 3, "localhost"));
  ranks.all_meet("of 3, restart 0");
}

TEST_CASE("init: a Slurm step whose port is taken fails with the reason, and joins no other job",
          "[runtime][integration]") {
  const int job = free_slurm_job();
  const auto port = static_cast<std::uint16_t>(20000 + job * 16 % 12000);
  StoreServer strangers({"127.0.0.1", "::1"}, port);
  TcpStore("127.0.0.1", port, std::chrono::seconds(10)).set("ddp/0/world/world_size", "2");
  Ranks ranks;
  const Result first = ranks.start({}, srun(job, 0, 2, "localhost")).wait();
  CHECK(first.code == 1);
  CHECK_THAT(first.out, Contains("port " + std::to_string(port) + " is taken") && Contains("set MASTER_PORT"));
  const Result second = ranks.start({"init_timeout=1000"}, srun(job, 1, 2, "localhost")).wait();
  CHECK(second.code == 1);
  CHECK_THAT(second.out, Contains("rank 0 of 2 did not come to localhost:" + std::to_string(port)));
  CHECK(ranks.none_left());
}

// ---- mpirun and mpiexec ----

TEST_CASE("init: processes that Open MPI's mpirun starts on one node are a job", "[runtime][integration]") {
  forget_own_job();
  const Result version = run({"sh", "-c", "mpirun --version"});
  if (version.out.find("Open MPI") == std::string::npos) skip("mpirun of Open MPI (package openmpi-bin) is needed");
  Process job({"mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "3", INIT_WORKER});
  const Result ended = job.wait();
  INFO(ended.err);
  CHECK(ended.code == 0);
  for (const char* rank : {"0", "1", "2"}) {
    const std::string r = rank;
    CHECK_THAT(ended.out, Contains("rank " + r + " of 3, local rank " + r + " of 3, restart 0, sum 6\n"));
  }
  CHECK(job.all_gone());
}

// The variable that says how many ranks are on this node is changed: so none can tell that all are.
TEST_CASE("init: ranks that mpirun or mpiexec start on several nodes meet by its own store", "[runtime][integration]") {
  forget_own_job();
  const std::vector<std::vector<std::string>> starters = {
      {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "3", "env", "OMPI_COMM_WORLD_LOCAL_SIZE=1"},
      {"mpiexec.hydra", "-n", "3", "env", "MPI_LOCALNRANKS=1"}};
  for (std::vector<std::string> command : starters) {
    CAPTURE(command.front());
    if (run({"sh", "-c", "command -v " + command.front()}).code != 0) skip(command.front() + " is needed");
    command.push_back(INIT_WORKER);
    Process job(command);
    const Result ended = job.wait();
    INFO(ended.err);
    CHECK(ended.code == 0);
    for (const char* rank : {"0", "1", "2"}) {
      CHECK_THAT(ended.out, Contains("rank " + std::string(rank) + " of 3, "));
    }
    CHECK(job.all_gone());
  }
}

// Hydra gives each process a socket and keeps the other end; so does the test.
TEST_CASE("init: processes that one mpiexec with PMI starts on a node are a job", "[runtime][integration]") {
  const TemporaryFolder folder;
  Ranks ranks;
  std::vector<int> sockets;
  for (int rank = 0; rank < 2; ++rank) {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    sockets.insert(sockets.end(), ends, ends + 2);
    const std::string r = std::to_string(rank);
    ranks.start({}, {{"PMI_RANK", r},
                     {"PMI_SIZE", "2"},
                     {"MPI_LOCALRANKID", r},
                     {"MPI_LOCALNRANKS", "2"},
                     {"PMI_FD", std::to_string(ends[1])},
                     {"TMPDIR", folder / ""}});
  }
  ranks.all_meet("of 2, restart 0");
  for (const int fd : sockets) close(fd);
  const std::filesystem::path meeting = folder / ("libddp-" + std::to_string(geteuid()));
  CHECK(std::filesystem::is_empty(meeting));
}

TEST_CASE("init: a rendezvous folder that others can write to is refused", "[runtime][integration]") {
  const TemporaryFolder folder;
  const std::filesystem::path meeting = folder / ("libddp-" + std::to_string(geteuid()));
  std::filesystem::create_directory(meeting);
  std::filesystem::permissions(meeting, std::filesystem::perms::all);
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  Ranks ranks;
  const Result ended = ranks
                           .start({}, {{"PMI_RANK", "0"},
                                       {"PMI_SIZE", "2"},
                                       {"MPI_LOCALNRANKS", "2"},
                                       {"PMI_FD", std::to_string(ends[1])},
                                       {"TMPDIR", folder / ""}})
                           .wait();
  CHECK(ended.code == 1);
  CHECK_THAT(ended.out, Contains("is not a folder that only this user can use: remove it, or set TMPDIR"));
  for (const int fd : ends) close(fd);
}

// ---- Several hosts ----

namespace {

// Two ranks on each host.
void start_on(const Hosts& hosts, Ranks& ranks, const std::string& place, const Variables& environment = {}) {
  const int size = 2 * hosts.count();
  for (int rank = 0; rank < size; ++rank) ranks.start({url(place, rank, size)}, environment, &hosts, rank / 2);
}

}  // namespace

TEST_CASE("init: ranks on several hosts meet by tcp, though rank 0's host resolves its own name to 127.0.1.1",
          "[runtime][integration]") {
  const Hosts hosts(2, {.debian_names = true});
  Ranks ranks;
  start_on(hosts, ranks, tcp(Hosts::name(0), free_port()));
  ranks.all_meet();
}

TEST_CASE("init: ranks on several hosts meet by tcp over IPv6 alone", "[runtime][integration]") {
  const Hosts hosts(2, {.v4 = false, .v6 = true});
  Ranks ranks;
  start_on(hosts, ranks, tcp(GENERATE(as<std::string>(), "[fd07::1]", "node0"), free_port()));
  ranks.all_meet();
}

TEST_CASE("init: ranks on several hosts meet in a file", "[runtime][integration]") {
  const bool v4 = GENERATE(true, false);
  const Hosts hosts(2, {.v4 = v4, .v6 = !v4, .debian_names = true});
  const TemporaryFolder folder;
  Ranks ranks;
  start_on(hosts, ranks, "file://" + (folder / "store"));
  ranks.all_meet();
}

TEST_CASE("init: ranks that meet in a file find the network that their hosts share", "[runtime][integration]") {
  using Networks = std::vector<std::vector<int>>;
  const Hosts hosts(2, {.networks = GENERATE(Networks{{0, 1}, {1}}, Networks{{0, 1}, {2, 1}})});
  const TemporaryFolder folder;
  Ranks ranks;
  start_on(hosts, ranks, "file://" + (folder / "store"));
  ranks.all_meet();
}

TEST_CASE("init: ranks that meet in a file use the interface that they are given", "[runtime][integration]") {
  const Hosts hosts(2, {.networks = {{0, 1}, {0, 1}}});
  hosts.deafen(1);  // on eth0, which seems as good as any other
  const TemporaryFolder folder;
  const char* name = GENERATE("DDP_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME");
  Ranks ranks;
  start_on(hosts, ranks, "file://" + (folder / "store"), {{name, "eth1"}});
  ranks.all_meet();
}

TEST_CASE("init: ranks on a host without a network meet over loopback", "[runtime][integration]") {
  const Hosts hosts(1, {.networks = {{}}});
  const TemporaryFolder folder;
  Ranks ranks;
  start_on(hosts, ranks, "file://" + (folder / "store"));
  ranks.all_meet();
}

TEST_CASE("init: the tasks of a step on two nodes meet on the first", "[runtime][integration]") {
  const Hosts hosts(2, {.debian_names = true});
  Ranks ranks;
  for (int rank = 0; rank < 3; ++rank) {
    const int node = rank / 2;
    ranks.start({}, srun(4711, rank, 3, "node[0-1]", node, "2,1"), &hosts, node);
  }
  ranks.all_meet();
}
