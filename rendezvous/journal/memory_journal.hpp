// SPDX-License-Identifier: BSD-3-Clause
// A journal that ends with its process: for a job of one node, whose coordinator ends with its agent anyway.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "rendezvous/journal/journal.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::rendezvous {

class MemoryJournal : public Journal {
 public:
  MemoryJournal(asio::io_context& io, std::string epoch) : io_(io), epoch_(std::move(epoch)) {}

  void claim(Callbacks callbacks) override {
    *callbacks_ = std::move(callbacks);
    asio::post(io_, [kept = std::weak_ptr(callbacks_), epoch = epoch_] {
      if (const auto to = kept.lock()) to->on_claimed({.epoch = epoch, .content = {}});
    });
  }
  void write(std::uint64_t number, std::string) override {
    asio::post(io_, [kept = std::weak_ptr(callbacks_), number] {
      if (const auto to = kept.lock()) to->on_kept(number);
    });
  }
  void release(std::function<void(bool is_gone)> on_released) override {
    asio::post(io_, [kept = std::weak_ptr(callbacks_), on_released = std::move(on_released)] {
      if (kept.lock()) on_released(true);
    });
  }
  std::size_t most_content_bytes() const override { return kMaxJournalContent; }

 private:
  asio::io_context& io_;
  const std::string epoch_;
  // Shared with what is posted, which may come after the destructor.
  std::shared_ptr<Callbacks> callbacks_ = std::make_shared<Callbacks>();
};

}  // namespace ddp::rendezvous
