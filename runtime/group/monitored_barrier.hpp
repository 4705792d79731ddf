// SPDX-License-Identifier: BSD-3-Clause
// A barrier through the store, which can name missing ranks. All ranks get one verdict: either that all have arrived,
// written by the last one to arrive, or which are missing, written by the first one whose deadline passes.
//
//     <prefix><sequence>/arrived/<rank>   exists once this rank has arrived
//     <prefix><sequence>/count            number of ranks that have arrived
//     <prefix><sequence>/verdict          "+"; or the failure: "-" and the missing ranks, "!" and the rank that gave up
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

  // `store` is a connection for this barrier alone, which wait() keeps busy. `prefix` begins the keys of this group's
  // barriers.
  MonitoredBarrier(std::unique_ptr<rendezvous::Store> store, std::string prefix, GroupPlace place);
  ~MonitoredBarrier();

  // Waits for all ranks. Returns nothing if all arrived, else the failure, with the same text on every rank that did:
  // Timeout if ranks are missing, PeerLost if one gave up. With `all_missing` it names every missing rank, not only the
  // first. Throws rendezvous::Error if the store fails.
  std::optional<rendezvous::Error> wait(std::uint64_t sequence, Milliseconds left, Milliseconds timeout,
                                        bool all_missing);

  // Sets the verdict, unless there is one, so that ranks that wait fail with this reason. `store` is another connection
  // to the same store.
  static void give_up(rendezvous::Store& store, const std::string& prefix, std::uint64_t sequence,
                      const std::string& why);

 private:
  std::string describe_missing(std::uint64_t sequence, Milliseconds timeout, bool all_missing);
  std::string arrival(std::uint64_t sequence, int rank) const;
  void forget(std::uint64_t sequence);

  std::unique_ptr<rendezvous::Store> store_;
  const std::string prefix_;
  GroupPlace place_;
  std::uint64_t passed_ = 0;  // sequence number of the last barrier passed; 0: none
};

}  // namespace ddp::runtime
