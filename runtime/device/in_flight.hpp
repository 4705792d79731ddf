// SPDX-License-Identifier: BSD-3-Clause
// Operations in the order they were issued, until they are done with. Each stays where it is in memory; one that is
// done with is used again for a later one, so that nothing is allocated once there are enough.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <utility>

namespace ddp::runtime {

template <typename T>  // its `sequence` is its own
class InFlight {
 public:
  using Taken = std::list<T>;  // one, or none

  // The last one from now on; what it held before is still in it.
  T& add() {
    if (spare_.empty()) return all_.emplace_back();
    all_.splice(all_.end(), spare_, spare_.begin());
    return all_.back();
  }
  // Null: it is done with, or there was none.
  T* find(std::uint64_t sequence) {
    const auto at = place_of(sequence);
    return at != all_.end() ? &*at : nullptr;
  }
  void retire_front() { spare_.splice(spare_.begin(), all_, all_.begin()); }
  // In two steps, for who has something to do in between.
  Taken take(std::uint64_t sequence) {
    Taken taken;
    if (const auto at = place_of(sequence); at != all_.end()) taken.splice(taken.end(), all_, at);
    return taken;
  }
  void retire(Taken taken) { spare_.splice(spare_.begin(), taken); }

  bool empty() const { return all_.empty(); }
  T& front() { return all_.front(); }
  const T& front() const { return all_.front(); }
  auto begin() { return all_.begin(); }
  auto end() { return all_.end(); }

 private:
  auto place_of(std::uint64_t sequence) {
    return std::find_if(all_.begin(), all_.end(), [&](const T& each) { return each.sequence == sequence; });
  }

  std::list<T> all_;
  std::list<T> spare_;
};

}  // namespace ddp::runtime
