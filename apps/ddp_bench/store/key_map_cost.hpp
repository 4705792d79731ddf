// SPDX-License-Identifier: BSD-3-Clause
// What the store's map of keys (rendezvous/store/key_map.hpp) costs next to a std::unordered_map with the same seeded
// hash. The worst single insert matters most: while it lasts, every client of the store waits.
#pragma once

#include <vector>

namespace ddp::bench {

// Times are CPU time of the measuring thread, so that other programs change them little.
struct KeyMapCost {
  const char* map = "";
  double worst_insert_ms = 0;
  double inserts_ms = 0;  // all of them, with two readings of the clock for each
  double finds_ms = 0;    // each key once
  double bytes_per_key = 0;
};

// Returns the medians of `runs` runs for each map. The maps take turns; each run fills a new map with `keys` keys of
// about 45 bytes and values of 20.
std::vector<KeyMapCost> key_map_costs(int keys, int runs);

}  // namespace ddp::bench
