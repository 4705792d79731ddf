// SPDX-License-Identifier: BSD-3-Clause
// Holds the clock of a simulated world and its future events, in order of time; those of one time in the order in which
// they were added.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "tests/sim/random.hpp"

namespace ddp::sim {

inline constexpr Time kStart{std::chrono::seconds(1000)};

class EventQueue {
 public:
  using Task = std::function<void()>;

  Time now() const { return now_; }
  bool empty() const { return heap_.empty(); }
  Time next() const { return heap_.front().time; }

  // Adds a task for this time; a time in the past means now.
  void at(Time time, Task task) {
    std::size_t slot = tasks_.size();
    if (free_.empty()) {
      tasks_.push_back(std::move(task));
    } else {
      slot = free_.back();
      free_.pop_back();
      tasks_[slot] = std::move(task);
    }
    heap_.push_back({std::max(time, now_), sequence_++, slot});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }

  void run_next() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Entry entry = heap_.back();
    heap_.pop_back();
    now_ = entry.time;
    const Task task = std::move(tasks_[entry.slot]);
    free_.push_back(entry.slot);
    task();
  }

 private:
  struct Entry {
    Time time;
    std::uint64_t sequence;
    std::size_t slot;
  };
  static bool later(const Entry& a, const Entry& b) {
    return a.time != b.time ? a.time > b.time : a.sequence > b.sequence;
  }

  Time now_ = kStart;
  std::uint64_t sequence_ = 0;
  std::vector<Entry> heap_;
  std::vector<Task> tasks_;
  std::vector<std::size_t> free_;
};

}  // namespace ddp::sim
