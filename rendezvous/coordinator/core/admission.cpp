// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/core/admission.hpp"

#include <cstddef>
#include <tuple>

#include "rendezvous/base/text.hpp"
#include "rendezvous/link/accept.hpp"

namespace ddp::rendezvous {

namespace {

std::string nnodes(const JobShape& job) {
  const std::string max = std::to_string(job.max_nodes);
  return job.min_nodes == job.max_nodes ? max : std::to_string(job.min_nodes) + ":" + max;
}

// Returns which option a node has otherwise than the job; empty: none.
std::string differing_option(const JobShape& theirs, const JobShape& ours) {
  const auto differ = [](const std::string& what, const std::string& there, const std::string& here) {
    return what + " is " + there + " on this host and " + here + " at the coordinator: give all hosts the same";
  };
  if (theirs.id != ours.id) {  // the right one is not told: without a secret, it is what a stranger has to know
    return "the coordinator's job has another --rdzv-id than '" + theirs.id +
           "' of this host (the coordinator's log shows both): give all hosts the same";
  }
  if (nnodes(theirs) != nnodes(ours)) return differ("--nnodes", nnodes(theirs), nnodes(ours));
  if (theirs.max_restarts != ours.max_restarts) {
    return differ("--max-restarts", std::to_string(theirs.max_restarts), std::to_string(ours.max_restarts));
  }
  if (theirs.node_ranks_given != ours.node_ranks_given) {
    const auto backend = [](const JobShape& job) { return job.node_ranks_given ? "static" : "c10d"; };
    return differ("--rdzv-backend", backend(theirs), backend(ours));
  }
  if (theirs.survivors_stay != ours.survivors_stay) {
    const bool is_elastic = ours.min_nodes < ours.max_nodes;
    const auto choice = [is_elastic](const JobShape& job) {
      return !job.survivors_stay ? "restart" : is_elastic ? "shrink" : "replace";
    };
    return differ("--on-failure", choice(theirs), choice(ours));
  }
  if (theirs.exclude_after != ours.exclude_after) {
    return differ("--exclude-after", std::to_string(theirs.exclude_after), std::to_string(ours.exclude_after));
  }
  if (theirs.restart_window != ours.restart_window) {
    return differ("--restart-window", to_string(theirs.restart_window), to_string(ours.restart_window));
  }
  return "";
}

}  // namespace

bool JobIdentity::is_of_other(const AgentState& state) const {
  if (state.epoch.empty()) return false;
  return epoch_is_number ? state.instance != instance : state.epoch != epoch;
}

Refusal refusal_of(const JobIdentity& identity, const Roster& roster, const AgentState& state) {
  const JobShape& ours = identity.job;
  if (const std::string option = differing_option(state.job, ours); !option.empty()) {
    return {Why::OptionsDiffer, option};
  }
  if (identity.was_before(state)) {
    return {Why::JobIsGone, "the job that this node was part of is over: " + identity.before->exit.reason};
  }
  if (identity.is_of_other(state)) {
    return {Why::JobIsGone, identity.epoch_is_number
                                ? "the job that this node was part of is over, and another one has its --rdzv-id"
                                : "the coordinator that this node served is gone, and another one has taken its place"};
  }
  if (ours.node_ranks_given && (state.node_rank < 0 || state.node_rank >= ours.max_nodes)) {
    return {Why::OptionsDiffer, "--node-rank " + std::to_string(state.node_rank) + " with --nnodes " + nnodes(ours) +
                                    ": give 0 to " + std::to_string(ours.max_nodes - 1)};
  }
  const bool is_own = state.incarnation == roster.own();
  const bool own_is_there = roster.has_own();  // if not, it is about to come, with node rank 0
  if (ours.node_ranks_given && state.node_rank == 0 && !own_is_there && !is_own) {
    return {Why::RankIsHeld, "--node-rank 0 is the coordinator's node: give each host a --node-rank of its own"};
  }
  const std::size_t nodes = roster.nodes().size();
  if (nodes >= static_cast<std::size_t>(ours.max_nodes) + kMaxSpares && !is_own) {
    return {Why::Failed, std::to_string(nodes) + " nodes are there, more than enough for --nnodes " + nnodes(ours) +
                             " and all spares: start this one later"};
  }
  if (state.slots < 1 || state.slots > kMaxSlots) {
    return {Why::OptionsDiffer,
            std::to_string(state.slots) + " workers on one node: give 1 to " + std::to_string(kMaxSlots)};
  }
  return {};
}

std::string why_not_believed(const JobIdentity& identity, const Roster& roster, int round, bool is_open,
                             const AgentReported& event) {
  const AgentState& state = event.state;
  if (identity.epoch_is_number && state.instance == identity.instance && is_older_epoch(identity.epoch, state.epoch)) {
    return "it has obeyed a newer coordinator (epoch " + state.epoch + ", this one has " + identity.epoch + ")";
  }
  if (!identity.is_of_other(state) && state.round > round && !state.epoch.empty()) {
    return "it reported round " + std::to_string(state.round) + ", the newest is " + std::to_string(round);
  }
  const Node* const node = roster.find(state.incarnation);
  if (!node) return "";
  const bool claims_own = roster.own_is_here() ? event.agent != node->link : !event.address.empty();
  if (roster.is_own(*node) && claims_own) return "it reported as the coordinator's own agent";
  const auto fixed = [](const AgentState& s) {
    return std::tie(s.job, s.node_rank, s.wanted_rank, s.slots, s.role, s.host, s.addresses, s.endpoint_host);
  };
  if (fixed(state) != fixed(node->state)) return "it reported another job, node rank, role, name or number of workers";
  if (identity.is_of_other(state)) return "it reported another epoch";
  if (event.agent >= node->link && state.round < node->state.round) {
    return "it went back to round " + std::to_string(state.round);
  }
  if (node->seat < 0 || state.round != round) return "";
  if (!is_open) return "it reported round " + std::to_string(state.round) + ", which is not open yet";
  for (const WorkerFailure& failure : state.failures) {
    if (failure.rank - failure.local_rank == node->base_rank) continue;
    return "it reported that rank " + std::to_string(failure.rank) + " failed, which is not its own";
  }
  return "";
}

}  // namespace ddp::rendezvous
