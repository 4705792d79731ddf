// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/core/seats.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <set>
#include <tuple>
#include <utility>

#include "rendezvous/base/text.hpp"
#include "rendezvous/net/addresses/numeric_address.hpp"

namespace ddp::rendezvous {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Takes the digits at the front of a text, without leading zeros.
std::string_view take_number(std::string_view& text) {
  while (text.size() > 1 && text[0] == '0' && is_digit(text[1])) text.remove_prefix(1);
  const auto end = std::find_if_not(text.begin(), text.end(), is_digit);
  const std::string_view number = text.substr(0, static_cast<std::size_t>(end - text.begin()));
  text.remove_prefix(number.size());
  return number;
}

// After a takeover another node may have had the first seat: it gets the one that the coordinator's node had, or the
// first that is free.
void give_first_seat_to_own(const Roster& roster, std::vector<Incarnation>& seats,
                            std::vector<const Node*>& newcomers) {
  if (seats.empty() || seats.front() == roster.own()) return;
  const auto own = std::find(seats.begin(), seats.end(), roster.own());
  if (own != seats.end()) return std::iter_swap(seats.begin(), own);
  const auto is_own = [&roster](const Node* node) { return roster.is_own(*node); };
  const auto coming = std::find_if(newcomers.begin(), newcomers.end(), is_own);
  if (seats.front().empty() || coming == newcomers.end()) return;
  std::iter_swap(newcomers.begin(), coming);
  newcomers.front() = &roster.at(std::exchange(seats.front(), roster.own()));
}

}  // namespace

bool goes_before(std::string_view a, std::string_view b) {
  const std::string_view whole_a = a, whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (is_digit(a[0]) && is_digit(b[0])) {
      const std::string_view x = take_number(a), y = take_number(b);
      if (x != y) return std::tuple(x.size(), x) < std::tuple(y.size(), y);
    } else {
      if (a[0] != b[0]) return a[0] < b[0];
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;  // equal but for zeros
}

bool SeatOrder::operator()(const AgentState& a, const AgentState& b) const {
  const auto rank_of = [](const AgentState& state) { return state.wanted_rank < 0 ? kNowhere : state.wanted_rank; };
  const auto x = std::tuple(rank_of(a), place_of(a.host)), y = std::tuple(rank_of(b), place_of(b.host));
  if (x != y) return x < y;
  return goes_before(a.host, b.host);
}

int SeatOrder::place_of(const std::string& host) const {
  auto place = places_.find(host);
  if (place == places_.end()) place = places_.find(host.substr(0, host.find('.')));
  return place == places_.end() ? kNowhere : place->second;
}

std::vector<Incarnation> choose_seats(const Roster& roster, const JobShape& job, const SeatOrder& order,
                                      const std::function<bool(const Node&)>& makes_room) {
  std::vector<const Node*> chosen;
  for (const auto& [incarnation, node] : roster.nodes()) {
    if (roster.is_ready(node)) chosen.push_back(&node);
  }
  std::sort(chosen.begin(), chosen.end(), [&](const Node* a, const Node* b) {
    const auto priority = [&](const Node& n) {
      const bool is_member = n.seat >= 0;
      return std::tuple(!roster.is_own(n), makes_room(n), !is_member, is_member ? n.seat : n.arrival);
    };
    return priority(*a) < priority(*b);
  });
  if (chosen.size() > static_cast<std::size_t>(job.max_nodes)) chosen.resize(static_cast<std::size_t>(job.max_nodes));
  std::vector<Incarnation> seats(job.node_ranks_given ? chosen.size() : roster.seats().size());
  std::vector<const Node*> newcomers;
  for (const Node* node : chosen) {
    if (job.node_ranks_given) {
      seats[static_cast<std::size_t>(node->state.node_rank)] = node->state.incarnation;
    } else if (node->seat >= 0) {
      seats[static_cast<std::size_t>(node->seat)] = node->state.incarnation;
    } else {
      newcomers.push_back(node);
    }
  }
  const auto goes_first = [&](const Node* a, const Node* b) {
    const bool own_a = roster.is_own(*a), own_b = roster.is_own(*b);
    return own_a != own_b ? own_a : order(a->state, b->state);
  };
  std::stable_sort(newcomers.begin(), newcomers.end(), goes_first);
  if (!job.node_ranks_given) give_first_seat_to_own(roster, seats, newcomers);
  // Newcomers take the seats that were left empty above: those of lost nodes and of members that are not ready.
  auto newcomer = newcomers.begin();
  for (Incarnation& seat : seats) {
    if (seat.empty() && newcomer != newcomers.end()) seat = (*newcomer++)->state.incarnation;
  }
  for (; newcomer != newcomers.end(); ++newcomer) seats.push_back((*newcomer)->state.incarnation);
  std::erase(seats, Incarnation());
  return seats;
}

std::vector<Assignment> assign_ranks(const Roster& roster, Assignment place) {
  std::map<std::string, int> workers_of_role, ranks_of_role;
  place.node_count = static_cast<int>(roster.seats().size());
  for (const Incarnation& seat : roster.seats()) {
    const AgentState& state = roster.at(seat).state;
    place.world_size += state.slots;
    workers_of_role[state.role] += state.slots;
  }
  std::vector<Assignment> places;
  for (const Incarnation& seat : roster.seats()) {
    const AgentState& state = roster.at(seat).state;
    int& role_rank = ranks_of_role[state.role];
    place.base_role_rank = role_rank;
    place.role_world_size = workers_of_role[state.role];
    places.push_back(place);
    ++place.node_rank;
    place.base_rank += state.slots;
    role_rank += state.slots;
  }
  return places;
}

MasterAddr choose_master_addr(const Roster& roster) {
  const AgentState& own = roster.at(roster.own()).state;
  bool all_here = true, all_spell_it = true, all_direct = true;
  std::set<std::string> arrivals;  // this machine's addresses at which links of other machines arrived
  std::vector<std::string> ways;   // in which they came, for the user
  for (const Incarnation& seat : roster.seats()) {
    const Node& node = roster.at(seat);
    // A node on the coordinator's machine reaches each of its addresses.
    if (node.state.host == own.host && node.state.addresses == own.addresses) continue;
    const bool is_direct = node.state.coordinator_address == node.arrived_at;  // else the network translates addresses
    all_here = false;
    all_spell_it = all_spell_it && node.state.endpoint_host == own.endpoint_host;
    all_direct = all_direct && is_direct;
    arrivals.insert(node.arrived_at);
    ways.push_back(node.state.host + " by " + node.state.coordinator_address +
                   (is_direct ? "" : ", which is " + node.arrived_at + " here"));
  }
  const bool leads_here = !own.endpoint_host.empty() && !own.coordinator_address.empty();
  if (all_here) return {leads_here ? own.endpoint_host : "127.0.0.1", ""};
  const bool is_one = arrivals.size() == 1;
  const bool is_own = is_one && *arrivals.begin() == own.coordinator_address;
  if (leads_here && all_spell_it && is_own) return {own.endpoint_host, ""};
  if (all_direct && is_one) return {*arrivals.begin(), ""};
  if (leads_here && all_spell_it && !is_loopback(own.coordinator_address)) return {own.endpoint_host, ""};
  return {"", "MASTER_ADDR is not the same on all nodes, since they reach this one in different ways (" +
                  list_of(ways, kNamesShown) +
                  "): a port that rank 0 opens on it may be out of reach for others; give all nodes the same "
                  "--rdzv-endpoint, or this one --local-addr with an address that all of them reach"};
}

}  // namespace ddp::rendezvous
