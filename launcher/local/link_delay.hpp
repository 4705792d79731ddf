// SPDX-License-Identifier: BSD-3-Clause
// How long the links of a job's nodes take, and which nodes answer slowly. Agents send heartbeats anyway, so to measure
// costs nothing: a round trip is the time from a heartbeat to the coordinator's answer. The node that coordinates has
// no link, so it has none.
//
// A busy machine delays single answers by much, and no link is slow for that. So what counts is the shortest of the
// newest kRoundTrips round trips: a node becomes slow when all of them were slow, and one that is fast ends that for
// the next kRoundTrips.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

inline constexpr std::size_t kRoundTrips = 20;  // 20 seconds of heartbeats by default

struct LinkDelay {
  std::int64_t microseconds = 0;  // the shortest of the newest round trips
  int round_trips = 0;            // how many these are, at most kRoundTrips
  bool operator==(const LinkDelay&) const = default;
};

// The newest round trips of one link.
class RoundTrips {
 public:
  void add(std::chrono::nanoseconds time);
  void clear() { count_ = 0; }
  std::optional<LinkDelay> delay() const;

 private:
  std::array<std::chrono::nanoseconds, kRoundTrips> newest_ = {};
  std::size_t count_ = 0;
};

struct NodeLink {
  std::string host;
  std::optional<LinkDelay> delay;  // nothing: it coordinates, or has not measured any
};

// Returns the links that stand out, by their place in the list. A link does if its round trip takes 50 ms or more, and
// five times as long as the links of most others. A link without kRoundTrips round trips counts neither way.
std::vector<std::size_t> slow_links(const std::vector<NodeLink>& links);

// Return why a node is said to be slow: "node b answers slowly: a round trip of its link takes 105 ms, and of the
// others 0.4 ms"; and all links in a line: "a 0.3 ms, b 105 ms", empty if none is measured.
std::string describe_slow_link(const std::vector<NodeLink>& links, std::size_t slow);
std::string describe_links(const std::vector<NodeLink>& links);

// Returns "0.35 ms", "4.2 ms" or "105 ms".
std::string describe_milliseconds(std::int64_t microseconds);

}  // namespace ddp::launcher
