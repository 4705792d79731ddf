// SPDX-License-Identifier: BSD-3-Clause
// A scenario with the threads that libddp has in a process.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/runtime/job/scenario.hpp"

namespace ddp::test {
namespace {

constexpr int kPauses = 20'000;

// Returns how often each thread has left the CPU, by name and number; of libddp's threads, or of this one only.
std::map<std::string, long> switches_of(bool libddps) {
  std::map<std::string, long> switches;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name, word;
    std::getline(std::ifstream(task.path() / "comm"), name);
    const std::string number = task.path().filename();
    if (libddps ? name.rfind("ddp-", 0) != 0 : number != std::to_string(getpid())) continue;
    long& count = switches[name + " " + number];
    for (std::ifstream status(task.path() / "status"); status >> word;) {
      long some = 0;
      if (word.find("_ctxt_switches:") != std::string::npos && status >> some) count += some;
    }
  }
  return switches;
}

std::vector<std::string> names_of_threads() {
  std::vector<std::string> names;
  for (const auto& [thread, count] : switches_of(true)) names.push_back(thread.substr(0, thread.find(' ')));
  return names;
}

// Sleeps many times, until another thread has answered through a pipe.
void pause_often() {
  int there[2], back[2];
  if (pipe(there) != 0 || pipe(back) != 0) _exit(3);
  std::thread other([&] {
    for (char byte = 0; read(there[0], &byte, 1) == 1;) {
      if (write(back[1], &byte, 1) != 1) return;
    }
  });
  const long before = switches_of(false).begin()->second;
  char byte = 0;
  while (switches_of(false).begin()->second < before + kPauses) {
    for (int i = 0; i < kPauses / 10; ++i) {
      if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1) _exit(3);
    }
  }
  close(there[1]);
  other.join();
  for (const int end : {there[0], back[0], back[1]}) close(end);
}

// With 2 ranks.
void idle(ddp::Session& session) {
  const ddp::ProcessGroup group = session.world();
  const int other = 1 - session.rank();
  std::vector<std::vector<float>> letters(100, std::vector<float>(10));
  std::vector<ddp::Work> works;
  for (auto& letter : letters) works.push_back(group.irecv(letter, other));
  for (const ddp::Work& work : works) expect(!work.is_completed(), "nobody has sent anything");
  const std::vector<std::string> few = names_of_threads();
  expect(std::count(few.begin(), few.end(), "ddp-message") == 0,
         "no thread waits for a message that the program polls");
  group.barrier();
  const std::vector<float> text(10, 1.0F);
  for (std::size_t i = 0; i < letters.size(); ++i) group.send(text, other);
  for (const ddp::Work& work : works) {
    while (!work.is_completed()) {
    }
    work.wait();
  }
  expect(letters.back() == text, "a polled message arrives");
  for (auto& letter : letters) group.all_reduce_async(letter).wait();
  const auto progress_threads = [] {
    const std::vector<std::string> names = names_of_threads();
    return std::count(names.begin(), names.end(), "ddp-progress");
  };
  while (progress_threads() == 0) std::this_thread::yield();  // a thread has its name once it runs
  expect(progress_threads() == 1, "one thread runs all asynchronous operations of a group");
  bool slept = false;
  for (int attempt = 0; attempt < 10 && !slept; ++attempt) {  // threads may be on their way to sleep at first
    const auto before = switches_of(true);
    pause_often();
    slept = switches_of(true) == before;
  }
  expect(slept, "no thread of libddp wakes up while nothing is in flight");
  group.barrier();
}

}  // namespace

Scenarios thread_scenarios() { return {{"threads", idle}}; }

}  // namespace ddp::test
