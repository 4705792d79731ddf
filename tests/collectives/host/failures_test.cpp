// SPDX-License-Identifier: BSD-3-Clause
// How groups form, and how they end: strangers, other users, mistakes, and ranks that are killed at any instruction
// (kills.hpp).
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

#include "collectives/backend_error.hpp"
#include "collectives/host/backend.hpp"
#include "collectives/host/host_group.hpp"
#include "rendezvous/base/descriptor_message.hpp"
#include "rendezvous/store/tcp_store.hpp"
#include "tests/collectives/host/job.hpp"
#include "tests/collectives/host/kills.hpp"
#include "tests/support/process.hpp"

using namespace ddp::collectives;
using namespace ddp::collectives::test;
using ddp::rendezvous::send_with_descriptors;
using ddp::rendezvous::TcpStore;
using Clock = std::chrono::steady_clock;

namespace {

std::string invitation(TcpStore& store, const std::string& group) {
  return store.get(group + "/segment/0", std::chrono::seconds(60));
}

// Connects to the abstract socket of rank 0.
int connect_to(const std::string& name) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  REQUIRE(connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0);
  return fd;
}

int sum_once(ddp_backend_group* group, int expected) {
  float one = 1;
  BackendError error;
  const bool right = host_backend().all_reduce(group, &one, 1, 0, 0, 0, 60'000, &error) == DDP_BACKEND_OK &&
                     one == static_cast<float>(expected);
  host_backend().group_destroy(group);
  return right ? 0 : 1;
}

}  // namespace

TEST_CASE("host group: a stranger who knows the socket but not the nonce gets nothing, and disturbs nobody",
          "[collectives][integration]") {
  const StoreProcess server;
  const auto join = [&](int rank) {
    return [&, rank] { return sum_once(join_group(server.port(), "g", rank, 2), 2); };
  };
  const pid_t first = fork_rank(join(0));
  TcpStore store("127.0.0.1", server.port(), std::chrono::seconds(60));
  store.set("g/place/1", to_word(own_place()));  // rank 0 invites once it knows where all ranks are
  const std::string invited = invitation(store, "g");
  const std::string name = invited.substr(0, invited.find(' '));
  const int silent = connect_to(name), liar = connect_to(name);
  const std::string hello = std::string(64, '0') + " 1";
  REQUIRE(send_with_descriptors(liar, hello, {STDERR_FILENO}));
  char byte = 0;
  CHECK(recv(liar, &byte, 1, 0) == 0);  // sent away
  const pid_t second = fork_rank(join(1));
  CHECK(reap(first) == 0);
  CHECK(reap(second) == 0);
  CHECK(recv(silent, &byte, 1, MSG_DONTWAIT) <= 0);
  close(silent);
  close(liar);
}

TEST_CASE("host group: ranks that are slow to say hello are not sent away, however many they are",
          "[collectives][integration]") {
  constexpr int kSize = 100;
  const StoreProcess server;
  const pid_t first = fork_rank([&] { return sum_once(join_group(server.port(), "g", 0, kSize), kSize); });
  TcpStore store("127.0.0.1", server.port(), std::chrono::seconds(60));
  for (int rank = 1; rank < kSize; ++rank) store.set("g/place/" + std::to_string(rank), to_word(own_place()));
  const std::string invited = invitation(store, "g");
  const std::size_t space = invited.find(' ');
  std::vector<int> others;
  for (int rank = 1; rank < kSize; ++rank) others.push_back(connect_to(invited.substr(0, space)));
  wait_until_asleep(first);  // it has accepted all of them
  for (int rank = 1; rank < kSize; ++rank) {
    const std::string hello = invited.substr(space + 1) + " " + std::to_string(rank);
    CHECK(send_with_descriptors(others[static_cast<std::size_t>(rank) - 1], hello, {STDERR_FILENO}));
  }
  for (const int other : others) {
    char byte = 0;
    CHECK(recv(other, &byte, 1, 0) == 1);  // welcome
  }
  kill(first, SIGKILL);
  CHECK(reap(first) == -1 - SIGKILL);
  for (const int other : others) close(other);  // the first rank has more to say than the welcome
}

TEST_CASE("host group: another user gets no shared memory, also if it says it is this one, but a group over TCP",
          "[collectives][integration]") {
  if (geteuid() != 0) {
    WARN("not run: only root can become another user");
    return;
  }
  const OwnPlace roots = own_place();
  for (const bool lies : {false, true}) {
    const StoreProcess server;
    const auto join = [&](int rank, uid_t user) {
      return [&, rank, user] {
        const auto become = [&] {  // the store, too, refuses other users
          if (user != 0 && setresuid(user, user, user) != 0) throw std::runtime_error("setresuid failed");
        };
        ddp_backend_group* group =
            join_group(server.port(), "g", rank, 2, 30'000, become, lies ? std::optional(roots) : std::nullopt);
        const bool is_apart = group->network != nullptr;
        return is_apart ? sum_once(group, 2) : 3;
      };
    };
    const pid_t first = fork_rank(join(0, 0)), second = fork_rank(join(1, 65534));
    CHECK(reap(second) == 0);
    CHECK(reap(first) == 0);
  }
}

TEST_CASE("host group: a rank that calls something else gets an error at once, and not a wrong result",
          "[collectives][integration]") {
  const StoreProcess server;
  const auto rank = [&](int number) {
    return [&, number] {
      ddp_backend_group* group = join_group(server.port(), "g", number, 2);
      std::vector<float> values(100, 1.0F);
      BackendError error;
      const auto status =
          host_backend().all_reduce(group, values.data(), number == 0 ? 100 : 50, 0, 0, 0, 60'000, &error);
      host_backend().group_abort(group);
      host_backend().group_destroy(group);
      const bool said = std::string(error.text).find("ranks disagree") != std::string::npos;
      return (status == DDP_BACKEND_ERROR && said) || status == DDP_BACKEND_PEER_LOST ? 7 : 1;
    };
  };
  const auto began = Clock::now();
  const pid_t first = fork_rank(rank(0)), second = fork_rank(rank(1));
  CHECK(reap(first) == 7);
  CHECK(reap(second) == 7);
  CHECK(Clock::now() - began < std::chrono::seconds(30));
}

TEST_CASE("host group: a deadline ends a wait for a rank that is stopped", "[collectives][integration]") {
  const StoreProcess server;
  const pid_t stopped = fork_rank([&] {
    join_group(server.port(), "g", 1, 2);
    raise(SIGSTOP);
    return 0;
  });
  const pid_t first = fork_rank([&] {
    ddp_backend_group* group = join_group(server.port(), "g", 0, 2);
    BackendError error;
    const auto status = host_backend().barrier(group, 0, 50, &error);
    host_backend().group_destroy(group);
    return static_cast<int>(status);
  });
  CHECK(reap(first) == DDP_BACKEND_TIMEOUT);
  kill(stopped, SIGKILL);
  CHECK(reap(stopped) == -1 - SIGKILL);
}

TEST_CASE("host group: a rank may leave right after its last collective, which the others still complete",
          "[collectives][integration]") {
  const StoreProcess server;
  for (int round = 0; round < 10; ++round) {
    std::vector<pid_t> ranks;
    for (int r = 0; r < 4; ++r) {
      ranks.push_back(fork_rank([&, r, round] {
        ddp_backend_group* group = join_group(server.port(), "g" + std::to_string(round), r, 4);
        return sum_once(group, 4);
      }));
    }
    for (const pid_t rank : ranks) CHECK(reap(rank) == 0);
  }
}

TEST_CASE("host group: whenever a rank is killed, the others name it within milliseconds, and nothing is left",
          "[collectives][integration]") {
  kill_ranks({{{0, 0}}, {{0, 0, 0}}, {{0, 0, 0, 0}}});
}

namespace {

// Allocates, frees, and allocates again, where rank 0 may not. Returns 7 if all is right, else where it was not.
int use_shared_buffers(std::uint16_t port, int rank) {
  ddp_backend_group* group = join_group(port, "g", rank, 2);
  constexpr std::size_t kBytes = 64 << 20;
  constexpr std::int64_t kPages = 2 * kBytes / 4096, kRings = 4096;
  BackendError error;
  void* memory = nullptr;
  if (host_backend().allocate(group, kBytes, 0, 60'000, &memory, &error) != DDP_BACKEND_OK) return 1;
  if (static_cast<unsigned char*>(memory)[kBytes - 1] != 0) return 2;
  if (pages_of_segments() < kPages) return 3;
  if (host_backend().barrier(group, 0, 60'000, &error) != DDP_BACKEND_OK) return 4;
  host_backend().release(group, memory);
  if (host_backend().barrier(group, 0, 60'000, &error) != DDP_BACKEND_OK) return 5;
  if (pages_of_segments() > kRings) return 6;
  if (host_backend().barrier(group, 0, 60'000, &error) != DDP_BACKEND_OK) return 9;
  if (rank == 0) {  // this process has too little address space left to map the parts of both ranks
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t bytes = pages * 4096 + kBytes * 3 / 2;
    const rlimit limit = {bytes, bytes};
    setrlimit(RLIMIT_AS, &limit);
  }
  const int said = memfd_create("stderr", MFD_CLOEXEC), own_stderr = dup(STDERR_FILENO);
  dup2(said, STDERR_FILENO);
  const auto status = host_backend().allocate(group, kBytes, 0, 60'000, &memory, &error);
  dup2(own_stderr, STDERR_FILENO);
  char line[256] = "";
  if (pread(said, line, sizeof line - 1, 0) < 0) return 10;
  const char* expected =
      rank == 0
          ? "libddp: a buffer of 67108864 bytes is in ordinary memory, which is slower: shared memory: mapping a buffer"
          : "";
  if (status != DDP_BACKEND_OK || !std::string(line).starts_with(expected) || (rank == 1 && line[0] != 0)) {
    std::fprintf(stderr, "rank %d: %s%s\n", rank, error.text, line);
    return 8;
  }
  auto* const values = static_cast<float*>(memory);
  for (std::size_t i = 0; i < kBytes / sizeof(float); ++i) {
    if (values[i] != 0) return 11;
    values[i] = 1;
  }
  if (host_backend().all_reduce(group, values, kBytes / sizeof(float), 0, 0, 0, 60'000, &error) != DDP_BACKEND_OK)
    return 12;
  const bool right = values[0] == 2 && values[kBytes / sizeof(float) - 1] == 2;
  host_backend().release(group, memory);
  host_backend().group_destroy(group);
  return right ? 7 : 13;
}

}  // namespace

TEST_CASE("shared buffers: their memory is freed with them, and if one rank cannot have one, all get ordinary memory",
          "[collectives][integration]") {
  const StoreProcess server;
  const pid_t first = fork_rank([&] { return use_shared_buffers(server.port(), 0); });
  const pid_t second = fork_rank([&] { return use_shared_buffers(server.port(), 1); });
  CHECK(reap(first) == 7);
  CHECK(reap(second) == 7);
}
