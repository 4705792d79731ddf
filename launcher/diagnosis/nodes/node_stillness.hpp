// SPDX-License-Identifier: BSD-3-Clause
// What a node says of itself when another one asks whether the whole job stands still, as JSON:
//
//     {"watched":true,"still":true,"shows_steps":false,"milliseconds":31200,"ended":[4,5],"round_trip_us":310,
//      "round_trips":10}
//
// Times are durations: the clocks of two nodes are never compared. What the node's link takes is missing at the
// coordinator's own node.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/local/link_delay.hpp"

namespace ddp::launcher {

struct NodeStillness {
  bool is_watched = false;             // it has --hang-timeout
  bool is_still = false;               // its workers make no progress: that is proved
  bool shows_steps = false;            // all its workers show steps, so that the oldest step is the measure
  std::chrono::milliseconds since{0};  // how long ago its newest sign of progress came
  std::vector<int> ended = {};         // ranks of its workers that have ended well
  std::optional<LinkDelay> link = {};  // to the coordinator

  bool operator==(const NodeStillness&) const = default;
};

std::string to_json(const NodeStillness& stillness);
// Returns what to_json() wrote; nothing if the text is something else.
std::optional<NodeStillness> stillness_from_json(std::string_view json);

}  // namespace ddp::launcher
