// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/diagnosis/progress.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>

#include "rendezvous/agent_page.hpp"
#include "runtime/base/own_agent.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::WorkerPage;

// Returns this worker's page, which stays mapped to the end of the process; null without an agent.
WorkerPage* ask_for_page() {
  const auto reply = ask_own_agent({.ask = "page"});
  if (!reply) return nullptr;
  const int local_rank = reply->answer.local_rank;
  if (local_rank < 0 || reply->descriptors.size() != 2) throw std::runtime_error("the agent: " + reply->answer.error);
  void* const page = mmap(nullptr, sizeof(WorkerPage), PROT_READ | PROT_WRITE, MAP_SHARED, reply->descriptors[1].get(),
                          static_cast<off_t>(local_rank) * static_cast<off_t>(sizeof(WorkerPage)));
  if (page == MAP_FAILED) throw std::runtime_error("its memory cannot be mapped");
  auto* const mine = static_cast<WorkerPage*>(page);
  if (mine->version == rendezvous::kPageVersion) return mine;
  throw std::runtime_error("its memory has layout " + std::to_string(mine->version) + ", and this libddp knows " +
                           std::to_string(rendezvous::kPageVersion) + " (use ddprun and libddp of one release)");
}

WorkerPage* page_or_null() {
  try {
    return ask_for_page();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "libddp: ddprun does not show this process's progress: %s\n", error.what());
    return nullptr;
  }
}

}  // namespace

void show_progress(std::int64_t step) noexcept {
  static WorkerPage* const page = page_or_null();
  if (page == nullptr) return;
  static std::mutex mutex;  // the page has one writer
  const std::lock_guard lock(mutex);
  timespec now = {};
  clock_gettime(CLOCK_BOOTTIME, &now);
  page->facts.write({.pid = getpid(), .step = step, .step_at = now.tv_sec * 1'000'000'000LL + now.tv_nsec});
}

}  // namespace ddp::runtime
