// SPDX-License-Identifier: BSD-3-Clause
// Groups on several nodes: the random programs, equal bits on one node and on several, and how they end. The nodes are
// simulated by places that differ, so their ranks use TCP over loopback. DDPRUN_COLLECTIVE_PROGRAMS is how many
// programs (default 150), DDPRUN_COLLECTIVE_SEED the first seed (default: drawn), DDPRUN_HOST_KILLS how many ranks are
// killed (default 30).
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <latch>
#include <random>
#include <sstream>
#include <thread>

#include "collectives/backend_error.hpp"
#include "collectives/host/backend.hpp"
#include "collectives/host/host_group.hpp"
#include "rendezvous/store/tcp_store.hpp"
#include "tests/collectives/host/job.hpp"
#include "tests/collectives/host/kills.hpp"
#include "tests/collectives/host/worlds.hpp"

using namespace ddp::collectives;
using namespace ddp::collectives::test;
using ddp::rendezvous::TcpStore;
using Clock = std::chrono::steady_clock;

namespace {

const ddp_backend_table& backend() { return host_backend(); }

// In each node the ranks follow each other: then results are those of one node.
const World kWorlds[] = {{{0, 1}}, {{0, 0, 1, 1}}, {{0, 1, 2}}, {{0, 0, 0, 1, 2, 2}}};

}  // namespace

TEST_CASE("nodes: random programs in threads on several nodes compute what the model of one node does",
          "[collectives][integration]") {
  run_in_threads(kWorlds);
}

TEST_CASE("nodes: random programs in processes with small rings compute what the model does",
          "[collectives][integration]") {
  run_in_processes(kWorlds, {{"4096", "4096"}, {"65536", "4096"}, {"8192", "65536"}});
}

TEST_CASE("nodes: a sum has the same bits on one node and on several, of any size and type",
          "[collectives][integration]") {
  check_equal_bits({{{0, 0, 0, 0}}, {{0, 0, 1, 1}}, {{0, 1, 1, 1}}, {{0, 1, 2, 3}}});
}

TEST_CASE("nodes: a part that is larger than what the kernel keeps of a connection arrives whole",
          "[collectives][integration]") {
  constexpr std::size_t kCount = 6 << 20;  // 24 MiB
  const StoreProcess server;
  const auto value = [](std::size_t i) { return static_cast<std::int32_t>(i * 7); };
  const auto rank = [&](int number) {
    return [&, number] {
      ddp_backend_group* group = join_on_node(number, server.port(), "g", number, 2);
      std::vector<std::int32_t> own(kCount), all(number == 0 ? 2 * kCount : 0);
      for (std::size_t i = 0; i < kCount; ++i) own[i] = value(i) + number;
      BackendError error;
      const auto status = backend().gather(group, own.data(), all.data(), kCount, 2, 0, 0, 60'000, &error);
      bool right = status == DDP_BACKEND_OK;
      for (std::size_t i = 0; i < all.size() && right; ++i) right = all[i] == value(i % kCount) + int(i >= kCount);
      backend().group_destroy(group);
      return right ? 0 : 1;
    };
  };
  const pid_t first = fork_rank(rank(0)), second = fork_rank(rank(1));
  CHECK(reap(first) == 0);
  CHECK(reap(second) == 0);
}

TEST_CASE("nodes: whenever a rank is killed, those of all nodes name it, and nothing is left",
          "[collectives][integration]") {
  kill_ranks({{{0, 1}}, {{0, 0, 1, 1}}, {{0, 1, 2}}, {{0, 0, 1, 2, 2}}});
}

TEST_CASE("nodes: a stranger on a rank's port gets nothing, and disturbs nobody", "[collectives][integration]") {
  const StoreProcess server;
  const auto rank = [&](int number) {
    return [&, number] {
      ddp_backend_group* group = join_on_node(number, server.port(), "g", number, 2);
      TcpStore store("127.0.0.1", server.port(), std::chrono::seconds(60));
      store.set("joined" + std::to_string(number), "");
      store.get("go", std::chrono::seconds(60));
      float one = 1;
      BackendError error;
      const auto status = backend().all_reduce(group, &one, 1, 0, 0, 0, 60'000, &error);
      backend().group_destroy(group);
      return status == DDP_BACKEND_OK && one == 2 ? 0 : 1;
    };
  };
  const pid_t first = fork_rank(rank(0)), second = fork_rank(rank(1));
  TcpStore store("127.0.0.1", server.port(), std::chrono::seconds(60));
  store.get("joined0", std::chrono::seconds(60));
  store.get("joined1", std::chrono::seconds(60));
  std::istringstream lines(store.get("g/address/all", std::chrono::seconds(60)));
  std::string line, address;
  std::getline(lines, line);  // the secrets
  std::getline(lines, line);
  std::istringstream words(line);
  std::uint16_t port = 0;
  std::size_t ignored = 0;
  words >> ignored >> ignored >> port >> address;
  std::vector<int> strangers;
  for (int i = 0; i < 200; ++i) {
    const int stranger = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    inet_pton(AF_INET, address.c_str(), &to.sin_addr);
    REQUIRE(connect(stranger, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
    strangers.push_back(stranger);
    if (i % 2 == 0) continue;  // silent
    const std::string lie = i % 4 == 1 ? "GET / HTTP/1.0\r\n\r\n" : "ddplink1" + std::string(80, '0');
    REQUIRE(send(stranger, lie.data(), lie.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(lie.size()));
    char byte = 0;
    CHECK(recv(stranger, &byte, 1, 0) <= 0);  // sent away
  }
  // The oldest of the silent connections make room for others.
  const timeval most = {60, 0};
  setsockopt(strangers.front(), SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  char nothing = 0;
  CHECK(recv(strangers.front(), &nothing, 1, 0) == 0);
  store.set("go", "");
  CHECK(reap(first) == 0);
  CHECK(reap(second) == 0);
  for (const int stranger : strangers) close(stranger);
}

TEST_CASE("nodes: a rank that calls something else than one of another node gets an error at once",
          "[collectives][integration]") {
  const StoreProcess server;
  struct Call {
    std::size_t count;
    std::int32_t op;
  };
  const auto rank = [&](int number, const std::string& name, Call call) {
    return [&, number, name, call] {
      ddp_backend_group* group = join_on_node(number, server.port(), name, number, 2);
      std::vector<float> values(100, 1.0F);
      BackendError error;
      const auto status = backend().all_reduce(group, values.data(), call.count, 0, call.op, 0, 60'000, &error);
      backend().group_abort(group);
      backend().group_destroy(group);
      const bool said = std::string(error.text).find("ranks disagree") != std::string::npos;
      return (status == DDP_BACKEND_ERROR && said) || status == DDP_BACKEND_PEER_LOST ? 7 : 1;
    };
  };
  const auto began = Clock::now();
  const Call one = {100, 0};
  for (const Call other : {Call{50, 0}, Call{100, 3}}) {  // another size, and the same size with another reduction
    const std::string name = "g" + std::to_string(other.count);
    const pid_t first = fork_rank(rank(0, name, one)), second = fork_rank(rank(1, name, other));
    CHECK(reap(first) == 7);
    CHECK(reap(second) == 7);
  }
  CHECK(Clock::now() - began < std::chrono::seconds(30));
}

TEST_CASE("nodes: a deadline ends a wait for a rank that is stopped, in collectives and messages",
          "[collectives][integration]") {
  const StoreProcess server;
  const pid_t stopped = fork_rank([&] {
    join_on_node(1, server.port(), "g", 1, 2);
    raise(SIGSTOP);
    return 0;
  });
  const pid_t first = fork_rank([&] {
    ddp_backend_group* group = join_on_node(0, server.port(), "g", 0, 2);
    BackendError error;
    std::vector<char> large(64 << 20);  // more than the kernel takes
    ddp_backend_message *sent = nullptr, *received = nullptr;
    std::int32_t peer = 0;
    char byte = 0;
    if (backend().send(group, large.data(), large.size(), 1, 0, &sent, &error) != DDP_BACKEND_OK) return 20;
    if (backend().receive(group, &byte, 1, 1, 0, &received, &error) != DDP_BACKEND_OK) return 21;
    if (backend().message_wait(group, sent, 50, &peer, &error) != DDP_BACKEND_TIMEOUT) return 22;
    if (backend().message_wait(group, received, 50, &peer, &error) != DDP_BACKEND_TIMEOUT) return 23;
    const auto status = backend().all_reduce(group, large.data(), large.size() / 4, 0, 0, 0, 50, &error);
    backend().group_abort(group);
    backend().message_free(sent);
    backend().message_free(received);
    backend().group_destroy(group);
    return static_cast<int>(status);
  });
  CHECK(reap(first) == DDP_BACKEND_TIMEOUT);
  kill(stopped, SIGKILL);
  CHECK(reap(stopped) == -1 - SIGKILL);
}

TEST_CASE("nodes: abort ends calls of this rank at once, and the ranks of other nodes learn which rank gave up",
          "[collectives][integration]") {
  const StoreProcess server;
  // Rank 3 gives up; the ranks of node 0 wait in a barrier, rank 2 in a message from node 0.
  const std::vector<int> node_of = {0, 0, 1, 1};
  std::vector<std::string> said(4);
  std::vector<ddp_backend_status> status(4, DDP_BACKEND_OK);
  std::latch joined(4);
  std::vector<std::thread> ranks;
  for (int r = 0; r < 4; ++r) {
    ranks.emplace_back([&, r] {
      const auto i = static_cast<std::size_t>(r);
      ddp_backend_group* group = join_on_node(node_of[i], server.port(), "g", r, 4);
      joined.arrive_and_wait();
      BackendError error;
      std::thread aborts;
      if (r == 3) aborts = std::thread([&] { backend().group_abort(group); });
      if (r == 2) {
        ddp_backend_message* message = nullptr;
        std::int32_t peer = 0;
        char byte = 0;
        backend().receive(group, &byte, 1, 0, 0, &message, &error);
        status[i] = backend().message_wait(group, message, 60'000, &peer, &error);
        backend().group_abort(group);
        backend().message_free(message);
      } else {
        status[i] = backend().barrier(group, 0, 60'000, &error);
      }
      if (aborts.joinable()) aborts.join();
      said[i] = error.text;
      backend().group_destroy(group);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  CHECK(status[3] == DDP_BACKEND_ABORTED);
  for (const std::size_t r : {0U, 1U, 2U}) {
    CHECK(status[r] == DDP_BACKEND_PEER_LOST);
    CHECK(said[r] == "its connection to rank 3 broke: it gave up on the group");
  }
}

TEST_CASE("nodes: a rank may leave right after its last collective or message, and a wait for one that has left ends",
          "[collectives][integration]") {
  const StoreProcess server;
  for (int round = 0; round < 10; ++round) {
    std::vector<pid_t> ranks;
    for (int r = 0; r < 4; ++r) {
      ranks.push_back(fork_rank([&, r, round] {
        ddp_backend_group* group = join_on_node(r / 2, server.port(), "g" + std::to_string(round), r, 4);
        BackendError error;
        float one = 1;
        if (backend().all_reduce(group, &one, 1, 0, 0, 0, 60'000, &error) != DDP_BACKEND_OK || one != 4) return 1;
        ddp_backend_message* message = nullptr;
        std::int32_t peer = 0, value = 77;
        if (r == 0) {
          backend().send(group, &value, sizeof value, 3, 5, &message, &error);
          if (backend().message_wait(group, message, 60'000, &peer, &error) != DDP_BACKEND_OK) return 2;
          backend().message_free(message);
        }
        if (r == 3) {
          backend().receive(group, &value, sizeof value, DDP_BACKEND_ANY_RANK, 5, &message, &error);
          if (backend().message_wait(group, message, 60'000, &peer, &error) != DDP_BACKEND_OK) return 3;
          if (peer != 0 || value != 77) return 4;
          backend().message_free(message);
          backend().receive(group, &value, sizeof value, 0, 5, &message, &error);
          if (backend().message_wait(group, message, 60'000, &peer, &error) != DDP_BACKEND_PEER_LOST) return 5;
          if (std::string(error.text) != "its connection to rank 0 broke: it left the group") return 6;
          backend().message_free(message);
        }
        backend().group_destroy(group);
        return 0;
      }));
    }
    for (const pid_t rank : ranks) CHECK(reap(rank) == 0);
  }
}
