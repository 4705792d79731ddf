// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/store_search.hpp"

#include <vector>

#include "launcher/process/process_tree.hpp"
#include "launcher/process/tcp_sockets.hpp"

namespace ddp::launcher {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

void StoreSearch::start(pid_t rank_0, const std::string& host, std::uint16_t port) {
  rank_0_ = rank_0;
  host_ = host;
  port_ = port;
  core_.emplace(Clock::now());
  wait();
}

void StoreSearch::stop() {
  core_.reset();
  timer_.cancel();
}

void StoreSearch::wait() {
  timer_.expires_at(core_->next(Clock::now()));
  timer_.async_wait([this](const auto& error) {
    if (!error && core_) examine();
  });
}

void StoreSearch::examine() {
  // Collect what the processes' sockets say.
  std::vector<pid_t> processes = descendants_of(rank_0_);
  processes.push_back(rank_0_);
  StoreSearchCore::Sample sample;
  for (const pid_t pid : processes) {
    TcpSockets sockets = tcp_sockets_of(pid, port_);
    sample.store_reached |= sockets.lead_to_port;
    sample.unconnected[pid] = std::move(sockets.unconnected);
  }
  // Let the core decide.
  if (const auto pid = core_->examine(sample, Clock::now())) {
    const std::string who = *pid == rank_0_ ? "rank 0 (pid " + std::to_string(*pid) + ")"
                                            : "process " + std::to_string(*pid) + " of rank 0";
    log_.warning("store_search",
                 who + " keeps trying to connect to an address where nobody listens, and not to the job's store at " +
                     host_ + ":" + std::to_string(port_) +
                     ": a program that sets MASTER_ADDR or MASTER_PORT itself must leave them as they are, or remove "
                     "TORCHELASTIC_USE_AGENT_STORE before init_process_group, so that its rank 0 hosts the store: "
                     "os.environ.pop(\"TORCHELASTIC_USE_AGENT_STORE\", None)",
                 0);
  }
  if (core_->over()) return core_.reset();
  wait();
}

}  // namespace ddp::launcher
