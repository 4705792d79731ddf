// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/nodes/formation.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include "collectives/host/failure.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/random_id.hpp"
#include "rendezvous/base/text_stream.hpp"
#include "rendezvous/net/listen.hpp"

namespace ddp::collectives {
namespace {

std::string words_of_rank(std::uint32_t rank) { return "rank " + std::to_string(rank) + " of the group"; }

// Leaves `own` under KIND/RANK, has rank 0 gather all of them, and returns them by rank. `first` comes first in what
// rank 0 publishes, and is returned by it.
std::vector<std::string> gather_all(const ddp_backend_group_config& config, const Notes& notes, const std::string& kind,
                                    const std::string& own, std::string& first) {
  const std::string published = kind + "/all";
  std::vector<std::string> all;
  if (config.rank != 0) {
    notes.set(kind + "/" + std::to_string(config.rank), own);
    rendezvous::TextStream lines(notes.get(published, words_of_rank(0)));
    std::getline(lines, first);
    for (std::string line; std::getline(lines, line);) all.push_back(line);
    if (all.size() != static_cast<std::size_t>(config.size))
      throw Failure(DDP_BACKEND_ERROR, "rank 0 published \"" + published + "\" for another number of ranks");
    return all;
  }
  all.push_back(own);
  std::string text = first + "\n" + own + "\n";
  for (int rank = 1; rank < config.size; ++rank) {
    all.push_back(notes.get(kind + "/" + std::to_string(rank), words_of_rank(static_cast<std::uint32_t>(rank))));
    text += all.back() + "\n";
  }
  notes.set(published, text);
  return all;
}

// Returns the places of all ranks.
std::vector<OwnPlace> gather_places(const ddp_backend_group_config& config, const Notes& notes, const OwnPlace& own) {
  std::string nothing;
  std::vector<OwnPlace> places;
  for (const std::string& word : gather_all(config, notes, "place", to_word(own), nothing)) {
    places.push_back(place_from(word));
  }
  return places;
}

// Says once in this process that a node of this machine shares no memory with an earlier one.
void say_what_is_apart(const ddp_backend_group_config& config, const Layout& layout,
                       const std::vector<OwnPlace>& places, const Met& met) {
  static std::atomic<bool> said{false};
  if (!layout.is_first() || layout.node == 0) return;
  for (std::uint32_t node = 0; node < layout.node; ++node) {
    const std::uint32_t other = layout.nodes[node].front();
    std::string why = met.why_apart.empty() ? difference(places[other], places[layout.rank]) : met.why_apart;
    if (why.empty() || places[other].boot != places[layout.rank].boot || said.exchange(true)) continue;
    const auto job_rank = [&](std::uint32_t rank) {
      return config.job_ranks != nullptr ? config.job_ranks[rank] : static_cast<std::int32_t>(rank);
    };
    std::string ranks;
    for (const std::uint32_t rank : layout.own_ranks()) {
      if (ranks.size() < 60) ranks += (ranks.empty() ? "" : ", ") + std::to_string(job_rank(rank));
    }
    std::fprintf(stderr, "libddp: rank%s %s and rank %d are on one machine but share no memory: %s; they use TCP\n",
                 layout.own_ranks().size() > 1 ? "s" : "", ranks.c_str(), job_rank(other), why.c_str());
    return;
  }
}

std::unique_ptr<OtherNodesPlan> find_others(const ddp_backend_group_config& config, const Notes& notes,
                                            const Met& met) {
  rendezvous::Listeners listeners = rendezvous::listen_on({config.local_address}, 0);
  const std::string own = std::to_string(met.ranks.front()) + " " + std::to_string(met.segment->plan().ring_bytes) +
                          " " + std::to_string(listeners.port) + " " + config.local_address;
  std::string first;
  if (config.rank == 0) {
    for (int i = 0; i < 8; ++i) first += rendezvous::random_id();
  }
  const std::vector<std::string> lines = gather_all(config, notes, "address", own, first);
  std::vector<std::uint32_t> first_of_node;
  std::vector<Endpoint> endpoints;
  std::size_t ring_bytes = met.segment->plan().ring_bytes;
  for (const std::string& line : lines) {
    rendezvous::TextStream words(line);
    std::uint32_t first_rank = 0;
    std::size_t rings = 0;
    Endpoint endpoint;
    if (!(words >> first_rank >> rings >> endpoint.port >> endpoint.host) || first_rank > first_of_node.size())
      throw Failure(DDP_BACKEND_ERROR, "the store has no address of " +
                                           words_of_rank(static_cast<std::uint32_t>(endpoints.size())) + ", but \"" +
                                           line + "\"");
    first_of_node.push_back(first_rank);
    ring_bytes = std::min(ring_bytes, rings);
    endpoints.push_back(endpoint);
  }
  return std::make_unique<OtherNodesPlan>(OtherNodesPlan{Layout(first_of_node, static_cast<std::uint32_t>(config.rank)),
                                                         ring_bytes, std::move(endpoints), LinkSecrets(first),
                                                         std::move(listeners.sockets[0])});
}

}  // namespace

Formation form(const ddp_backend_group_config& config, const OwnPlace& place, const SegmentPlan& plan,
               std::chrono::steady_clock::time_point deadline) {
  const Notes notes(config.store, deadline);
  const auto rank = static_cast<std::uint32_t>(config.rank);
  const auto size = static_cast<std::size_t>(config.size);
  const std::vector<OwnPlace> places = gather_places(config, notes, place);
  std::vector<std::uint32_t> equals;
  for (std::uint32_t r = 0; r < size; ++r) {
    if (may_share_memory(places[r], place)) equals.push_back(r);
  }
  Formation formation;
  formation.met = meet(rank, equals, size, plan, notes);
  if (formation.met.ranks.size() == size) {
    std::vector<std::optional<int>> numa_nodes;
    for (const OwnPlace& of_rank : places) numa_nodes.push_back(of_rank.numa_node);
    formation.numa = numa_layout(numa_nodes, rank);
    return formation;
  }
  formation.others = find_others(config, notes, formation.met);
  say_what_is_apart(config, formation.others->layout, places, formation.met);
  return formation;
}

}  // namespace ddp::collectives
