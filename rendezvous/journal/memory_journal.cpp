// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/journal/memory_journal.hpp"

namespace ddp::rendezvous {

void MemoryJournal::claim(Callbacks callbacks) {
  *callbacks_ = std::move(callbacks);
  asio::post(io_, [kept = std::weak_ptr(callbacks_), epoch = epoch_] {
    if (const auto to = kept.lock()) to->on_claimed({.epoch = epoch, .content = {}});
  });
}

void MemoryJournal::write(std::uint64_t number, std::string) {
  asio::post(io_, [kept = std::weak_ptr(callbacks_), number] {
    if (const auto to = kept.lock()) to->on_kept(number);
  });
}

void MemoryJournal::release(std::function<void(bool)> on_released) {
  asio::post(io_, [kept = std::weak_ptr(callbacks_), on_released = std::move(on_released)] {
    if (kept.lock()) on_released(true);
  });
}

}  // namespace ddp::rendezvous
