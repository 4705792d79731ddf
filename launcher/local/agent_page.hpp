// SPDX-License-Identifier: BSD-3-Clause
// The agent's end of the memory in which it and its workers show each other what they do (rendezvous/agent_page.hpp).
#pragma once

#include <optional>

#include "rendezvous/agent_page.hpp"
#include "rendezvous/base/descriptor.hpp"

namespace ddp::launcher {

class AgentPage {
 public:
  // Throws rendezvous::Error if the system provides no such memory.
  explicit AgentPage(int workers);
  ~AgentPage();
  AgentPage(const AgentPage&) = delete;
  AgentPage& operator=(const AgentPage&) = delete;

  void show(const rendezvous::NodeFacts& facts) { node_->facts.write(facts); }

  // Returns what a worker shows; nothing if it has shown nothing.
  std::optional<rendezvous::WorkerFacts> worker(int local_rank) const;
  // Empties the pages of workers that are gone, before others take their places.
  void clear_workers();

  // For workers: of the first they can map only a part for reading, whatever they try.
  int node_memory() const { return node_memory_.get(); }
  int workers_memory() const { return workers_memory_.get(); }

 private:
  const int workers_;
  rendezvous::Descriptor node_memory_, workers_memory_;
  rendezvous::NodePage* node_ = nullptr;
  rendezvous::WorkerPage* worker_pages_ = nullptr;
};

}  // namespace ddp::launcher
