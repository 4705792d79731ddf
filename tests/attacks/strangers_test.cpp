// SPDX-License-Identifier: BSD-3-Clause
// Strangers who reach the port of a job and speak something else.
#include <signal.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rendezvous/link/client.hpp"

#include "tests/integration/ddprun.hpp"
#include "tests/rendezvous/store/raw_connection.hpp"
#include "tests/support/ports.hpp"

using Catch::Matchers::Contains;
using ddp::rendezvous::RawConnection;
using ddp::testing::count;
using ddp::testing::ddprun;
using ddp::testing::free_port;
using ddp::testing::Process;

namespace {

// The first bytes of a client of each protocol that a port scanner or a misdirected program speaks.
const std::vector<std::string> kOtherProtocols = {
    "GET / HTTP/1.1\r\nHost: node0\r\n\r\n",
    std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),  // TLS 1.3's ClientHello
    "SSH-2.0-OpenSSH_9.2\r\n",
    "*1\r\n$4\r\nPING\r\n",                                                           // Redis
    std::string("\x00\x00\x00\x85\xff\x53\x4d\x42\x72", 9) + std::string(128, '\0'),  // SMB
    std::string(4096, '\xff'),
};

}  // namespace

TEST_CASE("strangers: other protocols at the job's port are closed at once, cost few lines, and the job goes on",
          "[attacks][integration]") {
  const int port = free_port();
  Process job(ddprun({"--nproc-per-node=2", "--master-port=" + std::to_string(port)},
                     {"count", "note=USR1", "say=up", "until=USR1", "count", "exit=0"}));
  job.wait_for("up", 2);
  for (int again = 0; again < 20; ++again) {
    for (const std::string& bytes : kOtherProtocols) {
      RawConnection stranger = RawConnection::to(static_cast<std::uint16_t>(port));
      CHECK(stranger.send(bytes));
      CHECK(stranger.ended());
    }
  }
  ddp::testing::tell_workers(job);
  const auto result = job.wait();
  CHECK(result.code == 0);
  CHECK(count(result.err, "store: closed ") <= 10);  // at most one a second
  CHECK(job.left_over().empty());
}

namespace {

// Somebody who speaks the protocol of agents, joins as a node, and then neither works nor leaves.
class IdleNode {
 public:
  IdleNode(int port, ddp::rendezvous::JobShape job) {
    namespace rdzv = ddp::rendezvous;
    rdzv::AgentState state;
    state.job = std::move(job);
    state.incarnation = state.host = "stranger";
    state.slots = 1;
    rdzv::LinkClient::Callbacks callbacks;
    callbacks.on_up = [this, state](const std::string&) { client_->send(state); };
    callbacks.on_message = [this](const rdzv::Directive& directive) {
      if (!std::exchange(is_told_, true)) told_.set_value(directive.reason);
    };
    callbacks.on_heartbeat = [] {};
    callbacks.on_down = callbacks.on_unreachable = callbacks.on_refused = [](const std::string&) {};
    client_ = std::make_unique<rdzv::LinkClient>(
        io_, rdzv::LinkTarget{.hosts = {"127.0.0.1"}, .ports = {static_cast<std::uint16_t>(port)}}, rdzv::Membership(),
        std::move(callbacks));
    client_->start();
    thread_ = std::thread([this] { io_.run(); });
  }
  ~IdleNode() {
    ddp::rendezvous::asio::post(io_, [this] {
      client_->stop();
      io_.stop();
    });
    thread_.join();
  }

  std::string first_answer() { return told_.get_future().get(); }

 private:
  ddp::rendezvous::asio::io_context io_{1};
  std::unique_ptr<ddp::rendezvous::LinkClient> client_;
  std::promise<std::string> told_;
  bool is_told_ = false;
  std::thread thread_;
};

}  // namespace

TEST_CASE("strangers: one who joins as a node without workers and never leaves does not hold up the end of the job",
          "[attacks][integration]") {
  const int port = free_port();
  const std::vector<std::string> options = {"--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-id=job",
                                            "--rdzv-endpoint=127.0.0.1:" + std::to_string(port)};
  const std::vector<std::string> verbs = {"catch=USR1", "meet", "ready", "wait"};
  Process first(ddprun(options, verbs));
  ddp::testing::wait_until([&] { return !ddp::testing::is_free(port); });
  Process second(ddprun(options, verbs));
  for (Process* node : {&first, &second}) node->wait_for("ready");
  IdleNode stranger(port, {.id = "job", .min_nodes = 1, .max_nodes = 2, .max_restarts = 0});
  REQUIRE_THAT(stranger.first_answer(), Contains("waits as a spare"));
  const auto start = std::chrono::steady_clock::now();
  for (Process* node : {&first, &second}) node->signal(SIGUSR1);
  for (Process* node : {&first, &second}) CHECK(node->wait().code == 0);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(8));  // a node is lost after 15 s
}
