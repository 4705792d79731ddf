// SPDX-License-Identifier: BSD-3-Clause
// A barrier through the store, which therefore knows who is missing. There is one verdict for all ranks: that all are
// there, written by the last to come, or who is missing, written by the first that has waited long enough.
//
//     <prefix><sequence>/arrived/<rank>   this rank is there
//     <prefix><sequence>/count            how many are
//     <prefix><sequence>/verdict          "+"; or why not: "-" and who is missing, "!" and who gave up
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "rendezvous/base/error.hpp"
#include "runtime/collective/operation.hpp"

namespace ddp::rendezvous {
class Store;
}

namespace ddp::runtime {

class MonitoredBarrier {
 public:
  using Milliseconds = std::chrono::milliseconds;

  // store: a connection of its own, which wait() keeps busy. prefix: of the keys of this group's barriers.
  MonitoredBarrier(std::unique_ptr<rendezvous::Store> store, std::string prefix, GroupPlace place);
  ~MonitoredBarrier();

  // Nothing if all ranks came; else why not, in the same words on all that did: Timeout if some are missing, PeerLost
  // if one gave up. all_missing: names every missing rank, not the first only. Throws rendezvous::Error if the store
  // fails.
  std::optional<rendezvous::Error> wait(std::uint64_t sequence, Milliseconds left, Milliseconds timeout,
                                        bool all_missing);

  // The verdict, unless there is one: whoever waits there is told. By another connection to the same store.
  static void give_up(rendezvous::Store& store, const std::string& prefix, std::uint64_t sequence,
                      const std::string& why);

 private:
  std::string describe_missing(std::uint64_t sequence, Milliseconds timeout, bool all_missing);
  std::string arrival(std::uint64_t sequence, int rank) const;
  void forget(std::uint64_t sequence);

  std::unique_ptr<rendezvous::Store> store_;
  const std::string prefix_;
  GroupPlace place_;
  std::uint64_t passed_ = 0;  // the last one; 0: none
};

}  // namespace ddp::runtime
