// SPDX-License-Identifier: BSD-3-Clause
// Tests both sides of a liveness word: the agent's, and the one of a worker that uses libddp.
#include "launcher/process/liveness_words.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <condition_variable>
#include <csignal>
#include <memory>
#include <mutex>
#include <string>

#include "launcher/process/process_tree.hpp"
#include "rendezvous/worker_contract.hpp"
#include "runtime/diagnosis/liveness_word.hpp"
#include "tests/support/process.hpp"

using ddp::launcher::LivenessWords;
using ddp::runtime::LivenessWord;
using ddp::testing::kDeadline;

namespace {

// An agent with two workers.
struct Agent {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int> lost;
  LivenessWords words{2, [this](int local_rank) {
                        const std::lock_guard lock(mutex);
                        lost.push_back(local_rank);
                        changed.notify_all();
                      }};
  ddp::rendezvous::Descriptor wake_up = words.take_wake_up_pipe();

  // Returns the local rank that arrives in the wake-up pipe; -1 if none does.
  int take_held() const {
    pollfd heard = {wake_up.get(), POLLIN, 0};
    int local_rank = -1;
    if (poll(&heard, 1, 30'000) == 1 && read(wake_up.get(), &local_rank, sizeof local_rank) != sizeof local_rank)
      return -2;
    return local_rank;
  }
  bool is_none_lost() {
    const std::lock_guard lock(mutex);
    return lost.empty();
  }
  // Waits until words were lost so often.
  bool is_lost(std::size_t times) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kDeadline, [&] { return lost.size() >= times; });
  }
};

// A child that holds the liveness word at `place` until it is killed. The constructor returns once
// it does or cannot.
class Child {
 public:
  explicit Child(const std::string& place) {
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    pid_ = fork();
    if (pid_ == 0) {
      const LivenessWord sign(place);
      const char answer = sign.held() ? 'y' : 'n';
      if (write(ready[1], &answer, 1) != 1) _exit(1);
      while (true) pause();
    }
    char answer = 0;
    REQUIRE(read(ready[0], &answer, 1) == 1);
    holds_ = answer == 'y';
    close(ready[0]);
    close(ready[1]);
  }
  ~Child() { kill(); }

  bool holds() const { return holds_; }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  bool holds_ = false;
};

}  // namespace

TEST_CASE("liveness words: a worker that holds one wakes the agent, and is missed when it is killed",
          "[launcher][integration]") {
  Agent agent;
  Child worker(agent.words.of_worker(1));
  REQUIRE(worker.holds());
  REQUIRE(agent.take_held() == 1);
  agent.words.watch(1);
  CHECK(agent.is_none_lost());
  worker.kill();
  REQUIRE(agent.is_lost(1));
  CHECK(agent.lost == std::vector<int>{1});
}

TEST_CASE("liveness words: a worker that dies before it is watched is missed", "[launcher][integration]") {
  Agent agent;
  Child(agent.words.of_worker(0)).kill();
  REQUIRE(agent.take_held() == 0);
  agent.words.watch(0);
  CHECK(agent.is_lost(1));
}

TEST_CASE("liveness words: the worker of a later round can hold the word again, and is missed too",
          "[launcher][integration]") {
  Agent agent;
  for (std::size_t round = 1; round <= 3; ++round) {
    Child worker(agent.words.of_worker(0));
    REQUIRE(worker.holds());
    REQUIRE(agent.take_held() == 0);
    agent.words.watch(0);
    worker.kill();
    REQUIRE(agent.is_lost(round));
  }
}

TEST_CASE("liveness words: a word has one holder at a time, and a holder that releases it is not missed",
          "[launcher][integration]") {
  Agent agent;
  agent.words.watch(0);
  auto first = std::make_unique<LivenessWord>(agent.words.of_worker(0));
  CHECK(first->held());
  CHECK_FALSE(Child(agent.words.of_worker(0)).holds());
  CHECK(Child(agent.words.of_worker(1)).holds());
  first.reset();
  Child second(agent.words.of_worker(0));
  CHECK(second.holds());
  CHECK(agent.is_none_lost());
  second.kill();
  REQUIRE(agent.is_lost(1));
  CHECK(agent.lost == std::vector<int>{0});  // the second holder, once
}

TEST_CASE("liveness words: a process that a worker forks does not hold its word", "[launcher][integration]") {
  Agent agent;
  agent.words.watch(0);
  {
    const LivenessWord sign(agent.words.of_worker(0));
    REQUIRE(sign.held());
    const pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, nullptr, 0);
    CHECK_FALSE(Child(agent.words.of_worker(0)).holds());  // still held by this process
  }
  CHECK(agent.is_none_lost());
}

TEST_CASE("liveness words: memory that is no agent's is left alone", "[launcher][integration]") {
  const int other = memfd_create("another program's", MFD_CLOEXEC);
  REQUIRE(ftruncate(other, 4096) == 0);
  Agent agent;
  const std::string real = agent.words.of_worker(0);
  const std::string memory = real.substr(0, real.rfind(':'));
  for (const std::string& place : {std::string(), std::string("nonsense"), std::string("/proc/self/fd/999:0"),
                                   std::string("/dev/null:0"), "/proc/self/fd/" + std::to_string(other) + ":0", memory,
                                   memory + ":", memory + ":-1", memory + ":2", memory + ":99999999"}) {
    CAPTURE(place);
    CHECK_FALSE(LivenessWord(place).held());
  }
  char content[4096];
  REQUIRE(read(other, content, sizeof content) == sizeof content);
  CHECK(std::string(content, sizeof content) == std::string(sizeof content, '\0'));
  close(other);
}

TEST_CASE("liveness words: an agent can end while its workers live", "[launcher][integration]") {
  auto agent = std::make_unique<Agent>();
  const Child worker(agent->words.of_worker(0));
  agent->words.watch(0);
  agent->words.watch(1);
  agent->words.watch(7);  // there is no such worker
  agent.reset();
  CHECK(worker.holds());
}
