// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/process/death_watch.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "launcher/process/process_tree.hpp"

namespace ddp::launcher {

namespace asio = rendezvous::asio;

namespace {

// After a liveness word is lost the worker is checked at once, then after pauses of a tenth of the
// time since then. After kEnough it is left to waitpid.
constexpr std::chrono::microseconds kFirstPause(100), kEnough(200'000);
constexpr std::chrono::milliseconds kSizesEvery(500);
constexpr std::size_t kLarge = std::size_t{64} << 20;  // takes the kernel 5 ms to free

}  // namespace

DeathWatch::DeathWatch(asio::io_context& io, int workers, std::chrono::milliseconds interval, Callbacks callbacks)
    : io_(io),
      interval_(interval),
      callbacks_(std::move(callbacks)),
      sizes_{Timer(io)},
      large_{Timer(io)},
      wake_up_(io),
      words_(workers, [this](int local_rank) { asio::post(io_, [this, local_rank] { on_word_lost(local_rank); }); }) {
  workers_.reserve(static_cast<std::size_t>(workers));
  for (int i = 0; i < workers; ++i) workers_.emplace_back(io);
  if (rendezvous::Descriptor pipe = words_.take_wake_up_pipe()) wake_up_.assign(pipe.release());
  if (wake_up_.is_open()) wait_for_words();
}

void DeathWatch::watch(int local_rank, pid_t pid) {
  Worker& worker = worker_at(local_rank);
  worker.pid = pid;
  worker.holds_word = worker.is_large = false;
  schedule_sizes();
}

void DeathWatch::forget(int local_rank) { worker_at(local_rank).pid = 0; }

void DeathWatch::stop() {
  wake_up_.close();
  sizes_.timer.cancel();
  large_.timer.cancel();
  for (Worker& worker : workers_) {
    worker.pid = 0;
    worker.next_check.cancel();
  }
}

void DeathWatch::wait_for_words() {
  wake_up_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const auto& error) {
    if (error) return;
    int local_rank;
    while (read(wake_up_.native_handle(), &local_rank, sizeof local_rank) == sizeof local_rank)
      on_word_held(local_rank);
    wait_for_words();
  });
}

void DeathWatch::on_word_held(int local_rank) {
  if (local_rank < 0 || local_rank >= size()) return;  // a worker may write anything into the pipe
  worker_at(local_rank).holds_word = true;
  words_.watch(local_rank);
}

void DeathWatch::on_word_lost(int local_rank) {
  Worker& worker = worker_at(local_rank);
  worker.holds_word = false;
  if (worker.pid == 0) return;  // the word was held by an earlier worker, reaped by now
  check_until_dead(local_rank, worker.pid, Clock::now());
  schedule_sizes();
}

// A worker without its word is dying or has executed another program. Its main thread may be the
// last to end, and until then there is no exit status, so it is checked again.
void DeathWatch::check_until_dead(int local_rank, pid_t pid, Clock::time_point lost_at) {
  Worker& worker = worker_at(local_rank);
  const Clock::duration since = Clock::now() - lost_at;
  if (worker.pid != pid || report_if_dying(local_rank) || since > kEnough) return;
  worker.next_check.expires_after(std::max<Clock::duration>(kFirstPause, since / 10));
  worker.next_check.async_wait([this, local_rank, pid, lost_at](const auto& error) {
    if (!error) check_until_dead(local_rank, pid, lost_at);
  });
}

// Returns whether the worker is dying, and reports it if it is.
bool DeathWatch::report_if_dying(int local_rank) {
  Worker& worker = worker_at(local_rank);
  const std::optional<int> status = status_of_dying(worker.pid);
  if (!status) return false;
  worker.pid = 0;
  if (*status != 0) callbacks_.dying(local_rank, *status);
  return true;
}

void DeathWatch::poll_sizes() {
  for (int i = 0; i < size(); ++i) {
    Worker& worker = worker_at(i);
    if (worker.pid == 0 || worker.holds_word || worker.is_large) continue;
    worker.is_large = resident_size(worker.pid) > kLarge;
    if (worker.is_large) {
      callbacks_.large(i);
      schedule(large_, interval_, &DeathWatch::poll_large);
    } else {
      schedule_sizes();
    }
  }
}

void DeathWatch::poll_large() {
  for (int i = 0; i < size(); ++i) {
    const Worker& worker = worker_at(i);
    if (worker.pid == 0 || worker.holds_word || !worker.is_large) continue;
    if (!report_if_dying(i)) schedule(large_, interval_, &DeathWatch::poll_large);
  }
}

void DeathWatch::schedule_sizes() { schedule(sizes_, kSizesEvery, &DeathWatch::poll_sizes); }

void DeathWatch::schedule(Poll& poll, std::chrono::milliseconds pause, void (DeathWatch::*run)()) {
  if (poll.is_scheduled) return;
  poll.is_scheduled = true;
  poll.timer.expires_after(pause);
  poll.timer.async_wait([this, &poll, run](const auto& error) {
    poll.is_scheduled = false;
    if (!error) (this->*run)();
  });
}

}  // namespace ddp::launcher
