// SPDX-License-Identifier: BSD-3-Clause
// Other users of a machine on which a job runs. They reach loopback, as everybody on the machine does.
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/store/c10d_protocol.hpp"
#include "rendezvous/store/tcp_store.hpp"
#include "tests/integration/ddprun.hpp"
#include "tests/rendezvous/store/hex.hpp"
#include "tests/rendezvous/store/raw_connection.hpp"
#include "tests/support/hosts.hpp"
#include "tests/support/other_user.hpp"
#include "tests/support/ports.hpp"

using Catch::Matchers::Contains;
using ddp::rendezvous::append_bytes;
using ddp::rendezvous::from_hex;
using ddp::rendezvous::RawConnection;
using ddp::rendezvous::TcpStore;
using ddp::rendezvous::to_hex;
using namespace ddp::testing;

namespace {

const std::string kHello = from_hex("00 cef7853c 0d 34120000");
const std::string kHelloAnswer = from_hex("34120000");

// Returns the bytes of a request that sets a key, which has no answer.
std::string set_request(const std::string& key, const std::string& value) {
  std::string bytes(1, '\x01');
  append_bytes(bytes, key);
  append_bytes(bytes, value);
  return bytes;
}

// Returns a connection of the other user to this port of loopback, on which these bytes were sent.
RawConnection strangers_connection(int port, const std::string& bytes) {
  std::optional<RawConnection> made;
  as_other_user([&made, port] { made = RawConnection::to(static_cast<std::uint16_t>(port)); });
  made->send(bytes);  // may fail: a connection that was refused takes none
  return std::move(*made);
}

TcpStore own_connection(int port) { return {"127.0.0.1", static_cast<std::uint16_t>(port), kDeadline}; }

// A job of one node with two workers that run until end().
struct RunningJob {
  explicit RunningJob(const Process::Options& options = {})
      : process(ddprun({"--nproc-per-node=2", "--master-port=" + std::to_string(port)}, Words{"count"} + kUntilTold),
                options) {
    process.wait_for("up", 2);
  }
  Result end() {
    tell_workers(process);
    return process.wait();
  }
  const int port = free_port();
  Process process;
};

}  // namespace

TEST_CASE("local users: another user neither reads nor changes a job's keys, also if the job has a secret",
          "[attacks][integration]") {
  const TemporaryFolder folder;
  Process::Options options;
  if (GENERATE(false, true)) {
    const std::string file = folder / "secret";
    REQUIRE(run(ddprun_raw({"--make-secret", file})).code == 0);
    options.environment["DDPRUN_SECRET_FILE"] = file;
  }
  RunningJob job(options);
  TcpStore own = own_connection(job.port);
  own.set("address of rank 0", "10.0.0.7:4000");

  std::string get(1, '\x03');
  append_bytes(get, "/address of rank 0");
  CHECK(strangers_connection(job.port, kHello + get).ended());
  CHECK(strangers_connection(job.port, kHello + set_request("/address of rank 0", "elsewhere")).ended());
  CHECK(own.get("address of rank 0") == "10.0.0.7:4000");

  const Result result = job.end();
  CHECK(result.code == 0);
  CHECK_THAT(result.err, Contains("(uid 65534)"));
  CHECK_THAT(result.err, Contains("--any-user"));
  CHECK(job.process.left_over().empty());
}

TEST_CASE("local users: what another user sent before he went away is not applied", "[attacks][integration]") {
  RunningJob job;
  TcpStore own = own_connection(job.port);
  own.set("k", "ours");
  const bool resets = GENERATE(false, true);
  // Everything arrives while the agent sleeps, so the stranger's socket is gone when the agent could ask whose it was.
  const pid_t agent = agent_of(job.process);
  REQUIRE(::kill(agent, SIGSTOP) == 0);
  wait_until([agent] { return state_of(agent) == 'T'; });
  for (int i = 0; i < 20; ++i) {
    const RawConnection stranger = strangers_connection(job.port, kHello + set_request("/k", "theirs"));
    const linger at_once{1, 0};
    if (resets) ::setsockopt(stranger.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  REQUIRE(::kill(agent, SIGCONT) == 0);
  CHECK(own_connection(job.port).get("k") == "ours");
  CHECK(own.get("k") == "ours");
  CHECK(job.end().code == 0);
}

TEST_CASE("local users: another user cannot hide his socket behind a network interface", "[attacks][integration]") {
  RunningJob job;
  std::optional<RawConnection> stranger;
  bool is_bound = false;
  as_other_user([&] {
    stranger = RawConnection::unconnected();
    is_bound = ::setsockopt(stranger->fd(), SOL_SOCKET, SO_BINDTODEVICE, "lo", 2) == 0;
    stranger->connect(static_cast<std::uint16_t>(job.port));
  });
  if (!is_bound) skip("this kernel lets only root bind sockets to an interface");
  stranger->send(kHello);
  CHECK(stranger->ended());
  CHECK(job.end().code == 0);
}

TEST_CASE("local users: another user cannot end a job of libddp in the launcher's name", "[attacks][integration]") {
  const TemporaryFolder folder;
  const std::string gate = folder / "gate";
  REQUIRE(run({"mkfifo", gate}).code == 0);
  const int port = free_port();
  // Rank 0 waits for rank 1, which has not begun.
  Process job(ddprun_raw({"--nproc-per-node=2", "--master-port=" + std::to_string(port), "--no-python", "bash", "-c",
                          "echo up; if [ $RANK = 1 ]; then read line < " + gate + "; fi; exec " INIT_WORKER}));
  job.wait_for("up", 2);
  TcpStore own = own_connection(port);
  own.get("ddp/0/world/joined/0");
  RawConnection stranger = strangers_connection(
      port, kHello + set_request("/ddprun/failed_ranks", "1") + set_request("/ddprun/failure", "mallory was here"));
  CHECK(stranger.ended());
  CHECK_FALSE(own.check({"ddprun/failed_ranks"}));
  write_file(gate, "go\n");
  const Result result = job.wait();
  CHECK(result.code == 0);
  CHECK(count(result.out, "sum 3") == 2);
  CHECK(count(result.out + result.err, "mallory") == 0);
  CHECK(job.left_over().empty());
}

TEST_CASE("local users: another user is refused where agents arrive, before a word is said", "[attacks][integration]") {
  const int port = free_port();
  Process job(ddprun({"--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1", "--master_port=" + std::to_string(port),
                      "--log-level=info"},
                     {"exit=0"}));
  job.wait_for("waiting for nodes");
  RawConnection stranger = strangers_connection(port,
                                                "\xdd"
                                                "ddprun");
  CHECK(stranger.receive(1).empty());
  job.wait_for("(uid 65534)");
  job.signal(SIGTERM);
  job.wait();
  CHECK(job.left_over().empty());
}

TEST_CASE("local users: --any-user lets workers of another user in", "[attacks][integration]") {
  const int port = free_port();
  Process job(ddprun({"--any-user", "--nproc-per-node=1", "--master-port=" + std::to_string(port)}, kUntilTold));
  job.wait_for("up");
  CHECK(strangers_connection(port, kHello).receive(kHelloAnswer.size()) == kHelloAnswer);
  tell_workers(job);
  CHECK(job.wait().code == 0);
}

TEST_CASE("local users: the store alone refuses other users and names them, unless it is for any user",
          "[attacks][integration]") {
  const int port = free_port();
  std::vector<std::string> command = {DDP_STORE_BINARY, "--json", "--port=" + std::to_string(port)};
  const bool any_user = GENERATE(false, true);
  if (any_user) command.push_back("--any-user");
  Process store(command);
  store.wait_for("listening on");
  if (any_user) {
    CHECK(strangers_connection(port, kHello).receive(kHelloAnswer.size()) == kHelloAnswer);
  } else {
    const OtherUsersProcess stranger([port] {
      RawConnection connection = RawConnection::to(static_cast<std::uint16_t>(port));
      connection.send(kHello);
      connection.ended();
    });
    store.wait_for("its process belongs to");
    store.wait_for("(uid 65534), pid " + std::to_string(stranger.pid()) + " (");
    CHECK(count(store.err(), "--any-user") == 1);
  }
  CHECK(own_connection(port).add("n", 1) == 1);
  store.signal(SIGTERM);
  CHECK_THAT(store.wait().out, Contains(any_user ? "\"other_users\":0" : "\"other_users\":1"));
}

TEST_CASE("local users: another user does not get into a store that rank 0 of libddp hosts", "[attacks][integration]") {
  const int port = free_port();
  Process::Options options;
  options.environment = {
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", std::to_string(port)}};
  Process rank0({INIT_WORKER}, options);
  wait_until([port] { return is_listened_at(port); });
  CHECK(strangers_connection(port, kHello).ended());
  rank0.wait_for("(uid 65534)");
  options.environment["RANK"] = "1";
  CHECK(run({INIT_WORKER}, options).code == 0);
  CHECK(rank0.wait().code == 0);
}

TEST_CASE(
    "local users: another user of another node does not write the store, also if he has gone when his node is asked",
    "[attacks][integration]") {
  if (::geteuid() != 0) skip("only root can be another user");
  const Hosts hosts(2);
  const std::string port = std::to_string(free_port());
  std::vector<std::unique_ptr<Process>> nodes;
  for (const int host : {0, 1}) {
    const Words options = {"--nnodes=2", "--node-rank=" + std::to_string(host), "--master-addr=10.7.0.1",
                           "--master-port=" + port, "--secret=none"};
    nodes.push_back(std::make_unique<Process>(hosts.on(host, ddprun(options, Words{"count"} + kUntilTold))));
  }
  for (const auto& node : nodes) node->wait_for("up");
  // Returns the process of a user of the other node that sends this. It prints what it hears.
  const auto send = [&](const std::string& user, const std::string& bytes) {
    std::string text;
    for (const char c : bytes) text += "\\x" + to_hex(std::string(1, c));
    return std::make_unique<Process>(hosts.on(
        1, {"setpriv", "--reuid=" + user, "--clear-groups", FAKE_PEER_BINARY, "connect", "10.7.0.1", port, text}));
  };
  // As releases before 2.1 ask. The answer has eight bytes before the value.
  const auto value_bytes = [&] {
    std::string get(1, '\x02');
    append_bytes(get, "/k");
    const auto reader = send("0", get);
    reader->wait_for("heard");
    return reader->out();
  };
  const auto owner = send("0", kHello + set_request("/k", "ours"));
  owner->wait_for("heard 4 bytes");
  CHECK_THAT(value_bytes(), Contains("heard 12 bytes"));

  const auto other = send("65534", kHello + set_request("/k", "theirs"));
  other->wait_for("closed");
  CHECK(count(other->out(), "heard") == 0);
  const pid_t agent = agent_of(*nodes[1]);
  REQUIRE(::kill(agent, SIGSTOP) == 0);
  wait_until([agent] { return state_of(agent) == 'T'; });
  const auto gone = send("65534", kHello + set_request("/k", "theirs"));
  gone->wait_for("connected");
  gone->signal(SIGKILL);
  gone->wait();
  REQUIRE(::kill(agent, SIGCONT) == 0);
  CHECK_THAT(value_bytes(), Contains("heard 12 bytes"));
  for (const auto& node : nodes) tell_workers(*node);
  for (const auto& node : nodes) CHECK(node->wait().code == 0);
}
