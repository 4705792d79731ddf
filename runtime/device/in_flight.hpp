// SPDX-License-Identifier: BSD-3-Clause
// Holds operations in the order they were issued until they are retired. Each keeps its address. A retired object is
// reused for a later operation, so that nothing is allocated once there are enough.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <utility>

namespace ddp::runtime {

template <typename T>  // T::sequence identifies an operation
class InFlight {
 public:
  using Taken = std::list<T>;  // one, or none

  // Appends an operation. The object still holds the values of its previous use.
  T& add() {
    if (spare_.empty()) return all_.emplace_back();
    all_.splice(all_.end(), spare_, spare_.begin());
    return all_.back();
  }
  // Returns null if the operation was retired or never added.
  T* find(std::uint64_t sequence) {
    const auto at = place_of(sequence);
    return at != all_.end() ? &*at : nullptr;
  }
  void retire_front() { spare_.splice(spare_.begin(), all_, all_.begin()); }
  // take() and retire() retire an operation in two steps, for a caller that has work to do in between.
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
