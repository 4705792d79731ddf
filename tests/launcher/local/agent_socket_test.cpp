// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/agent_socket.hpp"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <thread>

#include "launcher/local/agent_page.hpp"
#include "rendezvous/agent_client.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/worker_contract.hpp"
#include "runtime/diagnosis/progress.hpp"
#include "tests/support/other_user.hpp"
#include "tests/support/process.hpp"

using namespace ddp::launcher;
using namespace ddp::rendezvous;
using namespace ddp::testing;
using Catch::Matchers::Contains;

namespace {

// A socket that answers on a thread of its own.
struct Agent {
  explicit Agent(AgentSocket::Handle handle) : socket(io, path, std::move(handle)), thread([this] { io.run(); }) {}
  ~Agent() {
    asio::post(io, [this] { socket.stop(); });
    thread.join();
  }
  const TemporaryFolder folder;
  const std::string path = folder / "agent";
  asio::io_context io{1};
  AgentSocket socket;
  std::thread thread;
};

int new_visitor() { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0); }

bool connects(int visitor, const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, path.size());
  return connect(visitor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

int silent_visitor(const std::string& path) {
  const int fd = new_visitor();
  REQUIRE(connects(fd, path));
  return fd;
}

}  // namespace

TEST_CASE("agent socket: each request gets its answer, with descriptors", "[launcher][integration]") {
  const Descriptor file(memfd_create("file", MFD_CLOEXEC));
  REQUIRE(write(file.get(), "content", 7) == 7);
  Agent agent([&](const auto& request) {
    return AgentSocket::Answer{"you asked " + request.text,
                               request.text == "file" ? std::vector{file.get()} : std::vector<int>{}};
  });
  CHECK(ask_agent(agent.path, "this").text == "you asked this");
  const DescriptorMessage answer = ask_agent(agent.path, "file");
  REQUIRE(answer.descriptors.size() == 1);
  char text[8] = {};
  CHECK(pread(answer.descriptors[0].get(), text, 7, 0) == 7);
  CHECK(std::string(text) == "content");
}

TEST_CASE("agent socket: as soon as its path is there it takes visitors", "[launcher][integration]") {
  const TemporaryFolder folder;
  asio::io_context io{1};
  int refused = 0;
  for (int time = 0; time < 300; ++time) {
    const std::string path = folder / std::to_string(time);
    std::atomic<bool> is_waiting = false, is_refused = false;
    std::thread visitor([&] {
      const Descriptor end(new_visitor());
      while (!connects(end.get(), path) && !is_refused) {
        is_waiting = true;
        is_refused = errno == ECONNREFUSED;
      }
    });
    while (!is_waiting) std::this_thread::yield();
    const AgentSocket agent(io, path, [](const auto&) { return AgentSocket::Answer{}; });
    visitor.join();
    refused += is_refused;
  }
  CHECK(refused == 0);
}

TEST_CASE("agent socket: hundreds that ask nothing keep nobody out", "[launcher][integration]") {
  Agent agent([](const auto&) { return AgentSocket::Answer{"here"}; });
  std::vector<Descriptor> silent;
  for (int i = 0; i < 400; ++i) silent.emplace_back(silent_visitor(agent.path));
  CHECK(ask_agent(agent.path, "x").text == "here");
}

TEST_CASE("agent socket: another user gets no answer, also where it could enter the folder",
          "[launcher][integration]") {
  Agent agent([](const auto&) { return AgentSocket::Answer{"secret"}; });
  REQUIRE(chmod(agent.folder.path().c_str(), 0777) == 0);
  REQUIRE(chmod(agent.path.c_str(), 0777) == 0);
  std::string answer;
  as_other_user([&] {
    try {
      answer = ask_agent(agent.path, "x").text;
    } catch (const Error& error) {
      answer = error.what();
    }
  });
  CHECK_THAT(answer, Contains("is it another user's?"));
  CHECK(ask_agent(agent.path, "x").text == "secret");
}

TEST_CASE("agent socket: its path goes with it, and a later request fails because it is gone",
          "[launcher][integration]") {
  std::string path;
  const TemporaryFolder folder;
  {
    asio::io_context io;
    const AgentSocket socket(io, folder / "agent", [](const auto&) { return AgentSocket::Answer{""}; });
    path = socket.path();
    CHECK(access(path.c_str(), F_OK) == 0);
  }
  CHECK(access(path.c_str(), F_OK) != 0);
  CHECK_THROWS_WITH(ask_agent(path, "x"), Contains("it is gone"));
}

TEST_CASE("progress: a worker of libddp shows its step in the agent's memory", "[launcher][integration]") {
  AgentPage page(3);
  std::string request;
  Agent agent([&](const auto& asked) {
    request = asked.text;
    return AgentSocket::Answer{encode(AgentAnswer{.local_rank = 2}), {page.node_memory(), page.workers_memory()}};
  });
  setenv(contract::kAgentSocket, agent.path.c_str(), 1);
  setenv(contract::kIncarnation, "0123456789abcdef", 1);
  ddp::runtime::show_progress(41);
  ddp::runtime::show_progress(42);
  CHECK(request == encode(AgentRequest{.ask = "page", .incarnation = "0123456789abcdef"}));
  REQUIRE(page.worker(2));
  CHECK(page.worker(2)->step == 42);
  CHECK(page.worker(2)->pid == getpid());
  CHECK_FALSE(page.worker(1));
}
