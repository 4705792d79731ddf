// SPDX-License-Identifier: BSD-3-Clause
// Runs a whole job in one line of a Catch2 test.
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

// Runs `scenario` on `size` ranks with a store that the test hosts. Every rank must exit with 0. Returns their outputs.
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

// Writes to the store what ddprun writes when a worker has died.
inline void tell_failure(rendezvous::StoreServer& store, const std::string& ranks, const std::string& text) {
  store.set(std::string("/") + rendezvous::contract::kFailedRanksKey, ranks);
  store.set(std::string("/") + rendezvous::contract::kFailureKey, text);
}

enum class Others { Anywhere, Waiting };  // in an operation
struct Death {
  std::size_t victim;
  std::string after;  // a line that every rank prints
  Others others = Others::Anywhere;
};

// Runs a job, kills one rank and reports it as ddprun would. The others must exit with 0 long before any deadline.
// Returns their outputs by rank.
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
    CHECK(std::chrono::steady_clock::now() - killed < std::chrono::seconds(30));  // milliseconds where all is well
  }
  CHECK(no_child_left());
  return outputs;
}

}  // namespace ddp::test
