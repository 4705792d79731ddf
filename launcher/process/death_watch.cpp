// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/process/death_watch.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "launcher/process/process_tree.hpp"

namespace ddp::launcher {

namespace asio = rendezvous::asio;

namespace {

// Between looks after a sign is lost: each a tenth of the time since, and in the end it is left to waitpid.
constexpr std::chrono::microseconds kFirstPause(100), kEnough(200'000);
constexpr std::chrono::milliseconds kSizesEvery(500);
constexpr std::size_t kLarge = std::size_t{64} << 20;  // 5 ms to take back

}  // namespace

DeathWatch::DeathWatch(asio::io_context& io, int workers, std::chrono::milliseconds interval, Callbacks callbacks)
    : io_(io),
      interval_(interval),
      callbacks_(std::move(callbacks)),
      sizes_{Timer(io)},
      large_{Timer(io)},
      bell_(io),
      signs_(workers, [this](int local_rank) { asio::post(io_, [this, local_rank] { on_lost_sign(local_rank); }); }) {
  places_.reserve(static_cast<std::size_t>(workers));
  for (int i = 0; i < workers; ++i) places_.emplace_back(io);
  if (rendezvous::Descriptor bell = signs_.take_bell()) bell_.assign(bell.release());
  if (bell_.is_open()) hear_bell();
}

void DeathWatch::watch(int local_rank, pid_t pid) {
  Place& place = place_of(local_rank);
  place.pid = pid;
  place.shows_sign = place.is_large = false;
  await_sizes();
}

void DeathWatch::forget(int local_rank) { place_of(local_rank).pid = 0; }

void DeathWatch::stop() {
  bell_.close();
  sizes_.timer.cancel();
  large_.timer.cancel();
  for (Place& place : places_) {
    place.pid = 0;
    place.again.cancel();
  }
}

void DeathWatch::hear_bell() {
  bell_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const auto& error) {
    if (error) return;
    int local_rank;
    while (read(bell_.native_handle(), &local_rank, sizeof local_rank) == sizeof local_rank) on_shown_sign(local_rank);
    hear_bell();
  });
}

void DeathWatch::on_shown_sign(int local_rank) {
  if (local_rank < 0 || local_rank >= size()) return;  // who has the bell may write anything
  place_of(local_rank).shows_sign = true;
  signs_.watch(local_rank);
}

void DeathWatch::on_lost_sign(int local_rank) {
  Place& place = place_of(local_rank);
  place.shows_sign = false;
  if (place.pid == 0) return;  // this is about one before
  look_again(local_rank, place.pid, Clock::now());
  await_sizes();
}

// It dies, or has become another program; and its main thread may be the last to go.
void DeathWatch::look_again(int local_rank, pid_t pid, Clock::time_point lost_at) {
  Place& place = place_of(local_rank);
  const Clock::duration since = Clock::now() - lost_at;
  if (place.pid != pid || look(local_rank) || since > kEnough) return;
  place.again.expires_after(std::max<Clock::duration>(kFirstPause, since / 10));
  place.again.async_wait([this, local_rank, pid, lost_at](const auto& error) {
    if (!error) look_again(local_rank, pid, lost_at);
  });
}

// Whether it dies.
bool DeathWatch::look(int local_rank) {
  Place& place = place_of(local_rank);
  const std::optional<int> status = status_of_dying(place.pid);
  if (!status) return false;
  place.pid = 0;
  if (*status != 0) callbacks_.dying(local_rank, *status);
  return true;
}

void DeathWatch::look_at_sizes() {
  for (int i = 0; i < size(); ++i) {
    Place& place = place_of(i);
    if (place.pid == 0 || place.shows_sign || place.is_large) continue;
    place.is_large = resident_size(place.pid) > kLarge;
    if (place.is_large) {
      callbacks_.large(i);
      await(large_, interval_, &DeathWatch::look_at_large);
    } else {
      await_sizes();
    }
  }
}

void DeathWatch::look_at_large() {
  for (int i = 0; i < size(); ++i) {
    const Place& place = place_of(i);
    if (place.pid == 0 || place.shows_sign || !place.is_large) continue;
    if (!look(i)) await(large_, interval_, &DeathWatch::look_at_large);
  }
}

void DeathWatch::await_sizes() { await(sizes_, kSizesEvery, &DeathWatch::look_at_sizes); }

void DeathWatch::await(Looks& looks, std::chrono::milliseconds pause, void (DeathWatch::*begin)()) {
  if (looks.are_awaited) return;
  looks.are_awaited = true;
  looks.timer.expires_after(pause);
  looks.timer.async_wait([this, &looks, begin](const auto& error) {
    looks.are_awaited = false;
    if (!error) (this->*begin)();
  });
}

}  // namespace ddp::launcher
