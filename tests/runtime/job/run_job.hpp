// SPDX-License-Identifier: BSD-3-Clause
// A whole job in one line, for Catch2.
#pragma once

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <map>
#include <string>
#include <vector>

#include "rendezvous/store/server.hpp"
#include "rendezvous/worker_contract.hpp"
#include "tests/runtime/job/job.hpp"

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

enum class Others { Anywhere, Waiting };  // in an operation
struct Death {
  std::size_t victim;
  std::string after;  // a line that every rank says
  Others others = Others::Anywhere;
};

// A job of which one rank is killed, as ddprun would tell of it. The others must exit 0, and that long before any
// deadline. Returns what they said, by rank.
inline std::map<std::size_t, std::string> run_with_a_death(int size, const std::string& scenario, const Death& death) {
  const auto ranks = static_cast<std::size_t>(size);
  rendezvous::StoreServer store({"127.0.0.1"}, 0);
  std::map<std::size_t, std::string> outputs;
  {
    Job job(size, scenario, store.port(), true);
    for (std::size_t rank = 0; rank < ranks; ++rank) job.wait_for_line(rank, death.after);
    for (std::size_t rank = 0; rank < ranks && death.others == Others::Waiting; ++rank) {
      if (rank != death.victim) job.wait_until_asleep(rank);
    }
    job.kill(death.victim, SIGKILL);
    CHECK(job.finish(death.victim).signal == SIGKILL);
    const auto killed = std::chrono::steady_clock::now();
    const std::string victim = std::to_string(death.victim);
    tell_failure(store, victim, "rank " + victim + " on node b was killed by SIGKILL");
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (rank == death.victim) continue;
      const Ended ended = job.finish(rank);
      INFO("rank " << rank << " said: " << ended.output);
      CHECK(ended.code == 0);
      outputs[rank] = ended.output;
    }
    CHECK(std::chrono::steady_clock::now() - killed < std::chrono::seconds(30));  // where all is well, milliseconds
  }
  CHECK(no_child_left());
  return outputs;
}

}  // namespace ddp::test
