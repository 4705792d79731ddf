// SPDX-License-Identifier: BSD-3-Clause
// How soon a rank's death is known, and what counts as one.
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <future>
#include <string>
#include <thread>

#include "collectives/backend_error.hpp"
#include "collectives/host/backend.hpp"
#include "collectives/host/memory/liveness.hpp"
#include "collectives/host/memory/membership.hpp"
#include "tests/collectives/host/job.hpp"

using namespace ddp::collectives;
using namespace ddp::collectives::test;

namespace {

struct Pipe {
  Pipe() { REQUIRE(pipe2(ends, O_CLOEXEC) == 0); }
  ~Pipe() {
    close(ends[0]);
    close(ends[1]);
  }
  int ends[2];
};

bool has_futex_waitv() {
  if (syscall(449, nullptr, 0, 0, nullptr, 0) == -1 && errno == EINVAL) return true;
  WARN("not run: futex_waitv is missing here");
  return false;
}

// Three ranks; the last one has much memory, and is killed while nobody waits for it in particular: rank 0 waits for
// rank 1, which waits for a message of any rank. Returns how long after the kill the two knew, as a part of the time
// that the kernel took to end the process.
double wait_for_part_of_end(const StoreProcess& server, const std::string& name) {
  Pipe waiting, victim_ready;
  const auto waiter = [&](int rank) {
    return [&, rank] {
      ddp_backend_group* group = join_group(server.port(), name, rank, 3);
      BackendError error;
      float value = 0;
      ddp_backend_status status = DDP_BACKEND_OK;
      if (rank == 0) {
        status = host_backend().all_reduce(group, &value, 1, 0, 0, 0, 60'000, &error);
      } else {
        ddp_backend_message* message = nullptr;
        std::int32_t peer = 0;
        status = host_backend().receive(group, &value, sizeof value, DDP_BACKEND_ANY_RANK, 0, &message, &error);
        if (status == DDP_BACKEND_OK) status = host_backend().message_wait(group, message, 60'000, &peer, &error);
        host_backend().message_free(message);
      }
      report(waiting.ends[1], group, status, error.text);
      return 0;
    };
  };
  const pid_t first = fork_rank(waiter(0)), second = fork_rank(waiter(1));
  const pid_t victim = fork_rank([&] {
    const std::vector<char> memory = memory_of(400);
    join_group(server.port(), name, 2, 3);
    if (write(victim_ready.ends[1], memory.data(), 1) != 1) return 1;
    for (;;) pause();
  });
  read_from<char>(victim_ready.ends[0]);
  const double killed = now_us();
  kill(victim, SIGKILL);
  CHECK(reap(victim) == -1 - SIGKILL);
  const double ended = now_us();
  double known = 0;
  for (int i = 0; i < 2; ++i) {
    const auto lost = read_from<Report>(waiting.ends[0]);
    CHECK(std::string(lost.text) == "its connection to rank 2 broke: its process ended");
    known = std::max(known, lost.at_us);
  }
  CHECK(reap(first) == 0);
  CHECK(reap(second) == 0);
  return (known - killed) / (ended - killed);
}

}  // namespace

TEST_CASE("host group: a death is known before the kernel has freed the process's memory",
          "[collectives][integration]") {
  if (!has_futex_waitv()) return;
  const StoreProcess server;
  double best = 1;
  for (int attempt = 0; attempt < 5 && best > 0.5; ++attempt) {  // the two may have to wait for a CPU
    best = std::min(best, wait_for_part_of_end(server, "m" + std::to_string(attempt)));
  }
  CHECK(best <= 0.5);
}

TEST_CASE("host group: a rank whose process becomes another program is lost, though the process lives on",
          "[collectives][integration]") {
  const StoreProcess server;
  Pipe lost;
  const pid_t survivor = fork_rank([&] {
    ddp_backend_group* group = join_group(server.port(), "g", 0, 2);
    BackendError error;
    const auto status = host_backend().barrier(group, 0, 60'000, &error);
    report(lost.ends[1], group, status, error.text);
    return 0;
  });
  const pid_t other = fork_rank([&] {
    join_group(server.port(), "g", 1, 2);
    return execlp("sleep", "sleep", "600", nullptr);
  });
  CHECK(std::string(read_from<Report>(lost.ends[0]).text) == "its connection to rank 1 broke: its process ended");
  CHECK(reap(survivor) == 0);
  kill(other, SIGKILL);
  CHECK(reap(other) == -1 - SIGKILL);
}

namespace {

// A process that holds the words of these ranks until it is killed, and has held and released those of the others.
pid_t fork_holder(const Segment& segment, const std::vector<std::uint32_t>& ranks) {
  Pipe ready;
  const pid_t holder = fork_rank([&] {
    // A child does not get the mapping.
    const Segment own = Segment::attach(ddp::rendezvous::Descriptor(dup(segment.descriptor())));
    HeldWords words;
    std::promise<void> started, end;
    std::thread thread([&] {
      words.adopt_this_thread();
      started.set_value();
      end.get_future().wait();
    });
    started.get_future().wait();
    for (std::uint32_t rank = 0; rank < own.ranks(); ++rank) words.hold(own.liveness(rank));
    for (std::uint32_t rank = own.ranks(); rank-- > 0;) {
      if (std::count(ranks.begin(), ranks.end(), rank) == 0) words.release(own.liveness(rank));
    }
    if (fork() == 0) _exit(0);  // its end is nobody's
    wait(nullptr);
    if (write(ready.ends[1], "r", 1) != 1) return 1;
    for (;;) pause();
  });
  read_from<char>(ready.ends[0]);
  return holder;
}

}  // namespace

TEST_CASE("liveness words: those that a process holds when it dies show it, those it has released do not",
          "[collectives][integration]") {
  const Segment segment = Segment::create(plan_segment(4, 4096, 0));
  const pid_t holder = fork_holder(segment, {0, 2});
  for (const std::uint32_t rank : {0U, 1U, 2U, 3U}) CHECK_FALSE(holder_died(segment.liveness(rank)));
  kill(holder, SIGKILL);
  CHECK(reap(holder) == -1 - SIGKILL);
  CHECK(holder_died(segment.liveness(0)));
  CHECK(segment.liveness(1).holder == 0);
  CHECK(holder_died(segment.liveness(2)));
  CHECK(segment.liveness(3).holder == 0);
}

TEST_CASE("liveness words: a rank that sleeps wakes up when any rank dies", "[collectives][integration]") {
  if (!has_futex_waitv()) return;
  const Segment segment = Segment::create(plan_segment(3, 4096, 0));
  const Membership membership(segment, 0, {0, 1, 2}, {0, 1, 2});
  const pid_t holder = fork_holder(segment, {2});
  const std::string own_state = "/proc/self/task/" + std::to_string(syscall(SYS_gettid)) + "/stat";
  std::thread killer([&] {
    for (std::string state; state != "S";) {  // sleeps
      std::string id, name;
      std::ifstream(own_state) >> id >> name >> state;
    }
    kill(holder, SIGKILL);
  });
  const auto& word = segment.bell(0).rings;  // nobody rings it
  const double began = now_us();
  while (!membership.is_over()) membership.sleep(word, 0, 30'000'000'000, true);
  CHECK(now_us() - began < 20e6);
  CHECK(segment.header().lost == lost_value(2, LossReason::Died));
  killer.join();
  CHECK(reap(holder) == -1 - SIGKILL);
}
