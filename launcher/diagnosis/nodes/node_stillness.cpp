// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/nodes/node_stillness.hpp"

#include <sstream>

#include "launcher/text/json_text.hpp"
#include "launcher/text/ranges.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::launcher {

std::optional<std::vector<int>> ranks_in(const std::string& list) {
  std::vector<int> ranks;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    const auto rank = rendezvous::parse_number<int>(word);
    if (!rank || *rank < 0) return std::nullopt;
    ranks.push_back(*rank);
  }
  return ranks;
}

std::string to_json(const NodeStillness& stillness) {
  JsonObject json;
  json.number("watched", stillness.is_watched ? 1 : 0).number("still", stillness.is_still ? 1 : 0);
  json.number("shows_steps", stillness.shows_steps ? 1 : 0).number("milliseconds", stillness.since.count());
  json.text("ended", comma_list(stillness.ended));
  if (stillness.link) {
    json.number("round_trip_us", stillness.link->microseconds).number("round_trips", stillness.link->round_trips);
  }
  return json.str();
}

std::optional<NodeStillness> stillness_from_json(std::string_view json) {
  const auto members = json_members(json);
  if (!members) return std::nullopt;
  const auto number = [&members](const char* name) {
    const auto found = members->find(name);
    const auto* value = found == members->end() ? nullptr : std::get_if<std::int64_t>(&found->second);
    return value == nullptr ? std::nullopt : std::optional(*value);
  };
  const auto watched = number("watched"), still = number("still"), steps = number("shows_steps"),
             since = number("milliseconds");
  const auto list = members->find("ended");
  const auto* const ended = list == members->end() ? nullptr : std::get_if<std::string>(&list->second);
  if (!watched || !still || !steps || !since || *since < 0 || ended == nullptr) return std::nullopt;
  auto ranks = ranks_in(*ended);
  if (!ranks) return std::nullopt;
  NodeStillness said{*watched != 0, *still != 0, *steps != 0, std::chrono::milliseconds(*since), std::move(*ranks)};
  const auto trip = number("round_trip_us"), trips = number("round_trips");
  if (trip && trips && *trip >= 0 && *trips > 0) said.link = LinkDelay{*trip, static_cast<int>(*trips)};
  return said;
}

}  // namespace ddp::launcher
