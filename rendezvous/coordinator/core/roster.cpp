// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/core/roster.hpp"

#include <algorithm>
#include <utility>

namespace ddp::rendezvous {

std::string describe(const Node& node) { return describe(node.state.host, node.address); }

std::string describe(const std::string& host, const std::string& address) {
  return host + (address.empty() ? "" : " (" + address + ")");
}

const Node* Roster::find(const Incarnation& incarnation) const {
  const auto node = nodes_.find(incarnation);
  return node == nodes_.end() ? nullptr : &node->second;
}

const Node* Roster::on_link(AgentId link) const {
  const auto node = links_.find(link);
  return node == links_.end() ? nullptr : &nodes_.at(node->second);
}

std::chrono::milliseconds acts_within(std::chrono::milliseconds lost_after) {
  return std::max(kReconnectWindow, lost_after * 2 / 3 + kKilledWithin);
}

// ---- Counts ----

namespace {

// Whether no process of any round acts on the node. Workers that live wait for the next round.
bool acts_no_more(const Node& node) {
  return node.state.phase == WorkersPhase::Idle || node.state.phase == WorkersPhase::Quiet;
}

}  // namespace

bool Roster::is_ready(const Node& node) const {
  const bool is_clean = acts_no_more(node) && node.state.unkillable.empty();
  return is_clean && !node.cut && !node.leaving && node.holder.empty();
}

bool Roster::own_is_ready() const {
  const Node* const own = find(options_.own);
  return own && is_ready(*own);
}

bool Roster::is_idle(const Node& node) const {
  return acts_no_more(node) && node.seat >= 0 && node.state.round == round_;
}

void Roster::count(const Node& node, int sign) {
  const auto add = [sign](int& counter, bool counts) { counter += counts ? sign : 0; };
  add(counts_.ready, is_ready(node));
  add(counts_.spares, is_spare(node));
  add(counts_.cut, node.cut.has_value());
  add(counts_.members, node.seat >= 0);
  add(counts_.idle, is_idle(node));
  add(counts_.quiet, node.seat >= 0 && node.state.phase == WorkersPhase::Quiet);
  add(counts_.succeeded, has_succeeded(node));
  add(counts_.ending, node.seat >= 0 && node.state.round == round_ && node.state.is_ending);
  add(counts_.challengers, !node.holder.empty());
}

// ---- Nodes come and go ----

const Node& Roster::add(TimePoint now, AgentId link, const AgentState& state, const std::string& address,
                        const std::string& arrived_at) {
  Node& node = nodes_[state.incarnation];
  links_[link] = state.incarnation;
  node.state = state;
  node.state.failures.clear();
  node.address = address;
  node.arrived_at = arrived_at;
  node.link = link;
  node.comes_back_within = options_.back_within;
  node.arrival = ++arrivals_;
  node.heard = now;
  if (options_.node_ranks_given) claim_rank(node);
  count(node, 1);
  return node;
}

const Node& Roster::update(TimePoint now, AgentId link, const AgentState& state, const std::string& address,
                           const std::string& arrived_at) {
  return change(state.incarnation, [&](Node& node) {
    const bool is_new_link = link > node.link;
    node.unheard_since = is_new_link && !node.cut ? node.heard : silent_since(node, node.cut.value_or(now));
    if (is_new_link) {
      links_.erase(node.link);
      links_[link] = state.incarnation;
      node.link = link;
      node.cut.reset();
      node.comes_back_within = options_.back_within;
      node.address = address;
      node.arrived_at = arrived_at;
    }
    node.state = state;
    if (node.seat < 0) node.state.failures.clear();
  });
}

void Roster::mark_heard(const Incarnation& incarnation, TimePoint now) {
  Node& node = nodes_.at(incarnation);
  if (is_long(now - node.heard)) node.silence = {node.heard, now};
  node.heard = now;
  node.unheard_since_sleep = false;
}

void Roster::mark_cut(const Incarnation& incarnation, TimePoint now, const std::string& why) {
  change(incarnation, [&](Node& node) {
    links_.erase(node.link);
    node.cut = now;
    node.why_cut = why;
    node.heard_since_claim.reset();
  });
}

void Roster::mark_leaving(const Incarnation& incarnation) {
  change(incarnation, [](Node& node) { node.leaving = true; });
}

void Roster::set_directive(const Incarnation& incarnation, const Directive& directive) {
  nodes_.at(incarnation).directive = directive;
}

void Roster::remove(const Incarnation& incarnation) {
  const auto entry = nodes_.find(incarnation);
  const Incarnation gone = entry->first;  // `incarnation` may be a part of what is removed
  const Node& node = entry->second;
  count(node, -1);
  links_.erase(node.link);
  if (node.seat >= 0) seats_[static_cast<std::size_t>(node.seat)].clear();
  const auto held = holders_.find(node.state.node_rank);
  const bool was_holder = held != holders_.end() && held->second == gone;
  nodes_.erase(entry);
  if (!was_holder) return;
  holders_.erase(held);
  std::vector<Incarnation> claims = challengers_of(gone);
  std::sort(claims.begin(), claims.end(),
            [this](const auto& a, const auto& b) { return at(a).arrival < at(b).arrival; });
  for (const Incarnation& claimant : claims) {
    change(claimant, [this](Node& other) {
      other.holder.clear();
      claim_rank(other);
    });
  }
}

void Roster::begin_round(int round, std::vector<Incarnation> seats) {
  round_ = round;
  seats_ = std::move(seats);
  for (auto& [incarnation, node] : nodes_) node.seat = -1;
  for (std::size_t i = 0; i < seats_.size(); ++i) nodes_.at(seats_[i]).seat = static_cast<int>(i);
  counts_ = {};
  for (const auto& [incarnation, node] : nodes_) count(node, 1);
}

// Until a node reports over its new link, it is neither ready nor idle: its link is broken, and it has told of no
// round. Its agent may not have seen that the link broke (the network may have lost that), and then keeps its workers
// until its lease ends. What it reports then may have happened at any time since it was heard.
void Roster::restore(TimePoint now, int round, const std::vector<Node>& members, const std::string& why_cut) {
  std::vector<Incarnation> seats;
  for (const Node& member : members) {
    seats.push_back(member.state.incarnation);
    if (seats.back().empty()) continue;
    Node& node = nodes_[seats.back()];
    node = member;
    node.cut = now;
    node.why_cut = why_cut;
    node.comes_back_within = std::max(options_.back_within, acts_within(options_.lost_after));
    node.unheard_since_sleep = true;
    node.arrival = ++arrivals_;
    if (options_.node_ranks_given) claim_rank(node);
  }
  round_ = round;
  seats_ = std::move(seats);
  for (std::size_t i = 0; i < seats_.size(); ++i) {
    if (!seats_[i].empty()) nodes_.at(seats_[i]).seat = static_cast<int>(i);
  }
  counts_ = {};
  for (const auto& [incarnation, node] : nodes_) count(node, 1);
}

// ---- Node ranks ----

void Roster::claim_rank(Node& node) {
  const auto [holder, is_free] = holders_.emplace(node.state.node_rank, node.state.incarnation);
  if (is_free) return;
  node.holder = holder->second;
  nodes_.at(node.holder).heard_since_claim.reset();
}

bool Roster::is_heard_again(const Incarnation& holder, TimePoint now) {
  std::optional<TimePoint>& first = nodes_.at(holder).heard_since_claim;
  if (!first) first = now;
  return now - *first > options_.lost_after / 12;  // agents send 15 heartbeats in lost_after
}

std::vector<Incarnation> Roster::challengers_of(const Incarnation& holder) const {
  std::vector<Incarnation> challengers;
  if (counts_.challengers == 0) return challengers;
  for (const auto& [incarnation, node] : nodes_) {
    if (node.holder != holder) continue;
    challengers.push_back(incarnation);
  }
  return challengers;
}

// ---- Silence ----

std::vector<Roster::Expired> Roster::expired(TimePoint now) const {
  std::vector<Expired> expired;
  for (const auto& [incarnation, node] : nodes_) {
    if (is_own(node) && options_.own_is_here) continue;
    if (node.cut && now >= *node.cut + node.comes_back_within) {
      expired.push_back({incarnation, gone_since(node, now), true});
    } else if (!node.cut && now >= node.heard + options_.lost_after) {
      expired.push_back({incarnation, node.heard, false});
    }
  }
  return expired;
}

// Returns since when nothing was known of a node that breaks its link or reports at `until`. One that could speak would
// have; a short silence is that between two heartbeats.
TimePoint Roster::silent_since(const Node& node, TimePoint until) const {
  if (is_long(until - node.heard) || node.unheard_since_sleep) return node.heard;
  return node.silence && until - node.silence->to <= kAfterSilence ? node.silence->from : until;
}

void Roster::forgive_sleep(TimePoint::duration slept) {
  for (auto& [incarnation, node] : nodes_) {
    node.heard += slept;
    node.unheard_since_sleep = node.unheard_since_sleep || !node.cut;
    if (node.silence) node.silence = {node.silence->from + slept, node.silence->to + slept};
    if (node.cut) *node.cut += slept;
  }
}

}  // namespace ddp::rendezvous
