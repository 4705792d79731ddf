// SPDX-License-Identifier: BSD-3-Clause
// A whole job in one line, for Catch2.
#pragma once

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "rendezvous/store_server.hpp"
#include "rendezvous/worker_contract.hpp"
#include "tests/runtime/job.hpp"

namespace ddp::test {

// Runs `scenario` on `size` ranks against a store of the test's; every rank must exit 0. Returns their outputs.
inline std::vector<std::string> run(int size, const std::string& scenario, const Variables& more = {}) {
  rendezvous::StoreServer store({"127.0.0.1"}, 0);
  std::vector<std::string> outputs;
  {
    Job job(size, scenario, store.port(), true, more);
    for (int rank = 0; rank < size; ++rank) {
      const Ended ended = job.finish(static_cast<std::size_t>(rank));
      INFO("rank " << rank << " said: " << ended.output);
      CHECK(ended.signal == 0);
      CHECK(ended.code == 0);
      outputs.push_back(ended.output);
    }
  }
  CHECK(no_child_left());
  return outputs;
}

// What ddprun does when it learns of a dead worker.
inline void tell_failure(rendezvous::StoreServer& store, const std::string& ranks, const std::string& text) {
  store.set(std::string("/") + rendezvous::contract::kFailedRanksKey, ranks);
  store.set(std::string("/") + rendezvous::contract::kFailureKey, text);
}

}  // namespace ddp::test
