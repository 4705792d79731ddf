// SPDX-License-Identifier: BSD-3-Clause
// How groups form, and how they end: strangers, other nodes, mistakes, and ranks that are killed at any instruction.
// DDPRUN_HOST_KILLS is how many ranks are killed (default 30), DDPRUN_HOST_KILL_RANKS how many ranks a group has then
// (default: 2 to 4), DDPRUN_HOST_KILL_MIB the memory of each (default 0).
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "collectives/backend_error.hpp"
#include "collectives/host/backend.hpp"
#include "collectives/host/descriptor_message.hpp"
#include "rendezvous/store/tcp_store.hpp"
#include "tests/collectives/host/job.hpp"
#include "tests/support/process.hpp"

using namespace ddp::collectives;
using namespace ddp::collectives::test;
using ddp::rendezvous::StoreServer;
using ddp::rendezvous::TcpStore;
using Clock = std::chrono::steady_clock;

namespace {

const ddp_backend_table& table() { return host_backend(); }

std::string invitation(TcpStore& store, const std::string& group) {
  return store.get(group + "/segment", std::chrono::seconds(60));
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
  const bool right = table().all_reduce(group, &one, 1, 0, 0, 0, 60'000, &error) == DDP_BACKEND_OK &&
                     one == static_cast<float>(expected);
  table().group_destroy(group);
  return right ? 0 : 1;
}

}  // namespace

TEST_CASE("host group: a stranger who knows the socket but not the nonce gets nothing, and disturbs nobody",
          "[collectives][unit]") {
  StoreServer server({"127.0.0.1"}, 0);
  const auto join = [&](int rank) {
    return [&, rank] { return sum_once(join_group(server.port(), "g", rank, 2), 2); };
  };
  const pid_t first = fork_rank(join(0));
  TcpStore store("127.0.0.1", server.port(), std::chrono::seconds(60));
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

TEST_CASE("host group: another user is refused, though it knows the nonce", "[collectives][unit]") {
  if (geteuid() != 0) {
    WARN("not run: only root can become another user");
    return;
  }
  StoreServer server({"127.0.0.1"}, 0);
  const auto join = [&](int rank, uid_t user) {
    return [&, rank, user] {
      const auto become = [&] {  // the store, too, refuses other users
        if (user != 0 && setresuid(user, user, user) != 0) throw std::runtime_error("setresuid failed");
      };
      try {
        join_group(server.port(), "g", rank, 2, 30'000, become);
      } catch (const std::exception& e) {
        if (std::string(e.what()).find("another user") != std::string::npos) return 7;
        std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
        return 3;
      }
      return 0;
    };
  };
  const pid_t first = fork_rank(join(0, 0)), second = fork_rank(join(1, 65534));
  CHECK(reap(second) == 7);
  CHECK(reap(first) == 7);  // learns why from the store
}

TEST_CASE("host group: ranks that share no memory get an error that says so, and what to use", "[collectives][unit]") {
  StoreServer server({"127.0.0.1"}, 0);
  // Abstract sockets belong to a network namespace, so a fresh one after the store is reached is another node.
  const pid_t first = fork_rank([&] {
    try {
      join_group(server.port(), "g", 0, 2, 30'000);
    } catch (const std::exception& e) {
      return std::string(e.what()).find("\"gloo\" between nodes") != std::string::npos ? 7 : 3;
    }
    return 0;
  });
  TcpStore store("127.0.0.1", server.port(), std::chrono::seconds(60));
  invitation(store, "g");
  store.set("g/segment", "ddp-of-another-node " + std::string(64, '1'));
  const pid_t second = fork_rank([&] {
    try {
      join_group(server.port(), "g", 1, 2, 30'000);
    } catch (const std::exception& e) {
      return std::string(e.what()).find("shares no memory with rank 0") != std::string::npos ? 7 : 3;
    }
    return 0;
  });
  CHECK(reap(second) == 7);
  CHECK(reap(first) == 7);
}

TEST_CASE("host group: a rank that calls something else gets an error at once, and not a wrong result",
          "[collectives][unit]") {
  StoreServer server({"127.0.0.1"}, 0);
  const auto rank = [&](int number) {
    return [&, number] {
      ddp_backend_group* group = join_group(server.port(), "g", number, 2);
      std::vector<float> values(100, 1.0F);
      BackendError error;
      const auto status = table().all_reduce(group, values.data(), number == 0 ? 100 : 50, 0, 0, 0, 60'000, &error);
      table().group_abort(group);
      table().group_destroy(group);
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

TEST_CASE("host group: a deadline ends a wait for a rank that is stopped", "[collectives][unit]") {
  StoreServer server({"127.0.0.1"}, 0);
  const pid_t stopped = fork_rank([&] {
    join_group(server.port(), "g", 1, 2);
    raise(SIGSTOP);
    return 0;
  });
  const pid_t first = fork_rank([&] {
    ddp_backend_group* group = join_group(server.port(), "g", 0, 2);
    BackendError error;
    const auto status = table().barrier(group, 0, 50, &error);
    table().group_destroy(group);
    return static_cast<int>(status);
  });
  CHECK(reap(first) == DDP_BACKEND_TIMEOUT);
  kill(stopped, SIGKILL);
  CHECK(reap(stopped) == -1 - SIGKILL);
}

TEST_CASE("host group: a rank may leave right after its last collective, which the others still complete",
          "[collectives][unit]") {
  StoreServer server({"127.0.0.1"}, 0);
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

namespace {

int number_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : otherwise;
}

// Calls collectives and messages of all sizes until one fails, and reports that.
int work_until_failure(std::uint16_t port, const std::string& name, int rank, int size, int report_to) {
  const std::vector<char> memory = memory_of(number_from("DDPRUN_HOST_KILL_MIB", 0));
  ddp_backend_group* group = join_group(port, name, rank, size);
  const char ready = 'r';
  if (write(report_to, &ready, 1) != 1) return 2;
  std::vector<float> small(3), middle(20'000), large(400'000);
  std::vector<float> all(large.size() * static_cast<std::size_t>(size));
  BackendError error;
  ddp_backend_status status = DDP_BACKEND_OK;
  for (int i = 0; status == DDP_BACKEND_OK; ++i) {
    std::vector<float>& values = i % 7 < 4 ? small : i % 7 < 6 ? middle : large;
    if (i % 3 == 0) status = table().all_gather(group, values.data(), all.data(), values.size(), 0, 0, 60'000, &error);
    if (i % 3 == 1) status = table().all_reduce(group, values.data(), values.size(), 0, 0, 0, 60'000, &error);
    if (i % 3 == 2) status = table().broadcast(group, values.data(), values.size(), 0, i % size, 0, 60'000, &error);
  }
  report(report_to, group, status, error.text);
  return 0;
}

}  // namespace

TEST_CASE("host group: whenever a rank is killed, the others name it within milliseconds, and nothing is left",
          "[collectives][unit]") {
  const int kills = number_from("DDPRUN_HOST_KILLS", 30);
  std::mt19937 random{std::random_device()()};
  StoreServer server({"127.0.0.1"}, 0);
  const std::size_t descriptors = open_descriptors();
  std::vector<double> times;
  for (int kill_number = 0; kill_number < kills; ++kill_number) {
    const int size = number_from("DDPRUN_HOST_KILL_RANKS", 2 + static_cast<int>(random() % 3)),
              victim = static_cast<int>(random() % static_cast<unsigned>(size));
    std::vector<std::pair<pid_t, int>> ranks;
    for (int r = 0; r < size; ++r) {
      int ends[2];
      REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
      ranks.emplace_back(fork_rank([&, r] {
                           return work_until_failure(server.port(), "k" + std::to_string(kill_number), r, size,
                                                     ends[1]);
                         }),
                         ends[0]);
      close(ends[1]);
    }
    for (const auto& [pid, pipe] : ranks) CHECK(read_from<char>(pipe) == 'r');
    // At any instruction: after a random number of microseconds of work.
    const auto until = Clock::now() + std::chrono::microseconds(random() % 3000);
    while (Clock::now() < until) sched_yield();
    const double killed = now_us();
    kill(ranks[static_cast<std::size_t>(victim)].first, SIGKILL);
    for (int r = 0; r < size; ++r) {
      const auto& [pid, pipe] = ranks[static_cast<std::size_t>(r)];
      if (r == victim) {
        CHECK(reap(pid) == -1 - SIGKILL);
      } else {
        const auto report = read_from<Report>(pipe);
        INFO("kill " << kill_number << ", rank " << r << " of " << size << ", victim " << victim << ": "
                     << report.text);
        CHECK(report.status == DDP_BACKEND_PEER_LOST);
        CHECK(std::string(report.text) ==
              "its connection to rank " + std::to_string(victim) + " broke: its process ended");
        times.push_back((report.at_us - killed) / 1000);
        CHECK(reap(pid) == 0);
      }
      close(pipe);
    }
  }
  std::sort(times.begin(), times.end());
  CHECK(times.back() < 10'000);  // long before any deadline, on any machine
  if (std::getenv("DDPRUN_HOST_KILLS") != nullptr) {
    std::printf("from the kill to the error, %zu survivors: median %.2f ms, 99 %% %.2f ms, worst %.2f ms\n",
                times.size(), times[times.size() / 2], times[times.size() * 99 / 100], times.back());
  }
  CHECK(open_descriptors() == descriptors);
}

namespace {

// Returns the pages of the segment of this process's only group.
std::int64_t pages_of_segment() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    struct stat facts = {};
    if (target.starts_with("/memfd:ddp_group") && stat(entry.path().c_str(), &facts) == 0)
      return facts.st_blocks * 512 / 4096;
  }
  return 0;
}

// Allocates, frees, and allocates again, where rank 0 may not. Returns 7 if all is right, else where it was not.
int use_shared_buffers(std::uint16_t port, int rank) {
  ddp_backend_group* group = join_group(port, "g", rank, 2);
  constexpr std::size_t kBytes = 64 << 20;
  constexpr std::int64_t kPages = 2 * kBytes / 4096, kRings = 4096;
  BackendError error;
  void* memory = nullptr;
  if (table().allocate(group, kBytes, 0, 60'000, &memory, &error) != DDP_BACKEND_OK) return 1;
  if (static_cast<unsigned char*>(memory)[kBytes - 1] != 0) return 2;
  if (pages_of_segment() < kPages) return 3;
  if (table().barrier(group, 0, 60'000, &error) != DDP_BACKEND_OK) return 4;
  table().release(group, memory);
  if (table().barrier(group, 0, 60'000, &error) != DDP_BACKEND_OK) return 5;
  if (pages_of_segment() > kRings) return 6;
  if (table().barrier(group, 0, 60'000, &error) != DDP_BACKEND_OK) return 9;
  if (rank == 0) {  // this process has too little address space left to map the parts of both ranks
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t bytes = pages * 4096 + kBytes;
    const rlimit limit = {bytes, bytes};
    setrlimit(RLIMIT_AS, &limit);
  }
  const auto status = table().allocate(group, kBytes, 0, 60'000, &memory, &error);
  table().group_destroy(group);
  const std::string said = error.text;
  const char* expected = rank == 0 ? "mapping a buffer of 67108864 bytes" : "rank 0 of the group has no shared memory";
  if (said.find(expected) == std::string::npos) std::fprintf(stderr, "rank %d: %s\n", rank, error.text);
  return status == DDP_BACKEND_ERROR && said.find(expected) != std::string::npos ? 7 : 8;
}

}  // namespace

TEST_CASE("shared buffers: their memory is freed with them, and if one rank cannot have one, all get an error",
          "[collectives][unit]") {
  StoreServer server({"127.0.0.1"}, 0);
  const pid_t first = fork_rank([&] { return use_shared_buffers(server.port(), 0); });
  const pid_t second = fork_rank([&] { return use_shared_buffers(server.port(), 1); });
  CHECK(reap(first) == 7);
  CHECK(reap(second) == 7);
}
