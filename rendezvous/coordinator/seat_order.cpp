// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/seat_order.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <tuple>

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

}  // namespace ddp::rendezvous
