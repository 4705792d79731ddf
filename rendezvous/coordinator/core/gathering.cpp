// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/core/gathering.hpp"

#include <algorithm>
#include <vector>

#include "rendezvous/base/text.hpp"

namespace ddp::rendezvous {

using std::chrono::milliseconds;

void Gathering::begin(TimePoint now, bool waits) {
  since_ = now;
  until_ = now + (waits ? join_timeout_ : milliseconds(0));
}

void Gathering::stop() {
  until_.reset();
  last_call_until_.reset();
  wake_.reset();
  next_message_.reset();
  told_missing_.clear();
}

Gathering::Next Gathering::next(TimePoint now, const Roster& roster, int round) {
  if (!until_) {  // the first node is here
    since_ = now;
    until_ = now + join_timeout_;
  }
  if (!next_message_ && job_.max_nodes > 1) next_message_ = now + kFirstWaitingMessage;
  // A member of the last round whose link is broken will be back in a moment, or lost.
  if (roster.has_broken_link() && round > 0) return Next::Wait;
  // One that was quiet and died will be idle, or has others in the places of its dead.
  if (roster.members() > roster.idle()) return Next::Wait;
  const bool own_is_there = roster.own_is_ready();  // it may be the last to come
  if (own_is_there && roster.ready() >= job_.max_nodes) return Next::Open;
  const bool enough = own_is_there && elastic() && roster.ready() >= job_.min_nodes;
  if (enough && round > 0) return Next::Open;  // a node that comes later starts another round
  if (!enough) {
    last_call_until_.reset();
    if (now >= *until_) return Next::GiveUp;
  } else if (!last_call_until_) {
    last_call_until_ = now + last_call_;
  }
  if (last_call_until_ && now >= *last_call_until_) return Next::Open;
  wake_ = last_call_until_ ? last_call_until_ : until_;
  return Next::Wait;
}

std::optional<std::string> Gathering::message(TimePoint now, const Roster& roster) {
  next_message_ = now + kBetweenWaitingMessages;
  const std::string missing = describe_missing(roster);
  if (missing == told_missing_ && !last_call_until_ && now < tell_missing_again_) return std::nullopt;
  told_missing_ = missing;
  tell_missing_again_ =
      now + std::clamp<TimePoint::duration>((now - since_) / 2, kBetweenWaitingMessages, kMostBetweenSame);
  const auto waited = std::chrono::duration_cast<std::chrono::seconds>(now - since_);
  const std::string how_long =
      last_call_until_
          ? "last call: starting in " + to_string(std::chrono::ceil<std::chrono::seconds>(*last_call_until_ - now))
          : std::to_string(waited.count()) + " s of " + to_string(limit());
  return "waiting for nodes: " + missing + "; " + how_long;
}

std::string Gathering::describe_missing(const Roster& roster) const {
  std::vector<std::string> there, missing;
  for (const auto& [incarnation, node] : roster.nodes()) {
    if (roster.is_ready(node)) there.push_back(describe(node));
  }
  std::string text = std::to_string(there.size()) + " of " + (elastic() ? "at least " : "") +
                     std::to_string(job_.min_nodes) + " there (" + list_of(there, kNamesShown) + ")";
  if (!job_.node_ranks_given) {
    if (!roster.own_is_ready() && !there.empty()) text += "; missing: the agent of the coordinator's node";
    return text;
  }
  for (int rank = 0; rank < job_.max_nodes; ++rank) {
    if (!roster.is_held(rank)) missing.push_back(std::to_string(rank));
  }
  return text + "; missing: node rank" + (missing.size() == 1 ? " " : "s ") + list_of(missing, kNamesShown);
}

void Gathering::save(TimePoint now, JobRecord& record) const {
  if (!until_) return;
  record.gathers_since = std::chrono::duration_cast<milliseconds>(now - since_);
  record.gathers_for = limit();
}

void Gathering::restore(TimePoint recorded, const JobRecord& record) {
  if (!record.gathers_since) return;
  since_ = recorded - *record.gathers_since;
  until_ = since_ + record.gathers_for;
}

}  // namespace ddp::rendezvous
