// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/agent_page.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "rendezvous/base/error.hpp"

namespace ddp::launcher {
namespace {

using rendezvous::Descriptor;
using rendezvous::kPageBytes;
using rendezvous::WorkerFacts;

#ifndef F_SEAL_FUTURE_WRITE
constexpr int F_SEAL_FUTURE_WRITE = 0x0010;  // Linux 5.1
#endif

[[noreturn]] void page_failed(const char* what) {
  rendezvous::system_error(std::string("memory to share with the workers: ") + what);
}

// Returns memory whose size no process that has it open can change.
Descriptor page_memory(const char* name, std::size_t bytes) {
  Descriptor memory(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) page_failed("memfd_create");
  if (ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0) page_failed("ftruncate");
  if (fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) page_failed("sealing its size");
  return memory;
}

template <typename Page>
Page* map_pages(const Descriptor& memory, std::size_t count) {
  void* const pages = mmap(nullptr, count * sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (pages == MAP_FAILED) page_failed("mmap");
  return static_cast<Page*>(pages);
}

}  // namespace

AgentPage::AgentPage(int workers)
    : workers_(workers),
      node_memory_(page_memory("ddprun_node", kPageBytes)),
      workers_memory_(page_memory("ddprun_workers", static_cast<std::size_t>(workers) * kPageBytes)) {
  node_ = map_pages<rendezvous::NodePage>(node_memory_, 1);
  node_->version = rendezvous::kPageVersion;
  // From now on nobody else can write. Older kernels know no such seal; then workers are trusted not to.
  if (fcntl(node_memory_.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0 && errno != EINVAL) {
    page_failed("sealing its content");
  }
  worker_pages_ = map_pages<rendezvous::WorkerPage>(workers_memory_, static_cast<std::size_t>(workers_));
  clear_workers();
}

AgentPage::~AgentPage() {
  if (node_ != nullptr) munmap(node_, sizeof *node_);
  if (worker_pages_ != nullptr) munmap(worker_pages_, static_cast<std::size_t>(workers_) * sizeof *worker_pages_);
}

std::optional<WorkerFacts> AgentPage::worker(int local_rank) const {
  const rendezvous::WorkerPage& page = worker_pages_[local_rank];
  const auto facts = page.facts.read();
  return facts && facts->pid != 0 ? facts : std::nullopt;
}

void AgentPage::clear_workers() {
  for (int i = 0; i < workers_; ++i) {
    worker_pages_[i].version = rendezvous::kPageVersion;
    worker_pages_[i].facts.write(WorkerFacts{.pid = 0, .step = -1, .step_at = 0});
  }
}

}  // namespace ddp::launcher
