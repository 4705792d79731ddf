// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/nodes/node_stillness.hpp"

#include <algorithm>

#include "rendezvous/wire/declared_json.hpp"

namespace ddp::launcher {

template <typename Json>
void members(Json& json, NodeStillness& stillness) {
  LinkDelay link = stillness.link.value_or(LinkDelay{});
  json.must("watched", stillness.is_watched).must("still", stillness.is_still);
  json.must("shows_steps", stillness.shows_steps).must("milliseconds", stillness.since).must("ended", stillness.ended);
  json.rest("round_trip_us", link.microseconds).rest("round_trips", link.round_trips);
  if (Json::kReads && link.microseconds >= 0 && link.round_trips > 0) stillness.link = link;
}

std::string to_json(const NodeStillness& stillness) { return rendezvous::json_of(stillness); }

std::optional<NodeStillness> stillness_from_json(std::string_view json) {
  auto said = rendezvous::read_json<NodeStillness>(json);
  const auto is_strange = [](int rank) { return rank < 0; };
  if (!said || said->since.count() < 0 || std::any_of(said->ended.begin(), said->ended.end(), is_strange)) return {};
  return said;
}

}  // namespace ddp::launcher
