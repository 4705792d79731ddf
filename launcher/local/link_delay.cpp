// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/link_delay.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "rendezvous/base/text.hpp"

namespace ddp::launcher {
namespace {

// Far more than the network within a data center takes, also under load, and little enough that a training feels it.
constexpr std::int64_t kSlowFrom = 50'000;  // microseconds
constexpr std::int64_t kTimesOthers = 5;
constexpr std::size_t kMostShown = 16;

bool is_settled(const NodeLink& link) { return link.delay && link.delay->round_trips >= static_cast<int>(kRoundTrips); }

// Returns the median of the other links, the upper one of two; nothing if there is no other.
std::optional<std::int64_t> median_of_others(const std::vector<NodeLink>& links, std::size_t node) {
  std::vector<std::int64_t> others;
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (i != node && is_settled(links[i])) others.push_back(links[i].delay->microseconds);
  }
  if (others.empty()) return std::nullopt;
  const auto middle = others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2);
  std::nth_element(others.begin(), middle, others.end());
  return *middle;
}

}  // namespace

void RoundTrips::add(std::chrono::nanoseconds time) { newest_[count_++ % kRoundTrips] = time; }

std::optional<LinkDelay> RoundTrips::delay() const {
  if (count_ == 0) return std::nullopt;
  const std::size_t size = std::min(count_, kRoundTrips);
  const auto shortest = *std::min_element(newest_.begin(), newest_.begin() + static_cast<std::ptrdiff_t>(size));
  return LinkDelay{std::chrono::duration_cast<std::chrono::microseconds>(shortest).count(), static_cast<int>(size)};
}

std::vector<std::size_t> slow_links(const std::vector<NodeLink>& links) {
  std::vector<std::size_t> slow;
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (!is_settled(links[i]) || links[i].delay->microseconds < kSlowFrom) continue;
    const auto others = median_of_others(links, i);
    if (others && links[i].delay->microseconds >= kTimesOthers * *others) slow.push_back(i);
  }
  return slow;
}

std::string describe_milliseconds(std::int64_t microseconds) {
  char text[40];
  const double time = static_cast<double>(microseconds) / 1000;
  snprintf(text, sizeof text, time < 1 ? "%.2f ms" : time < 10 ? "%.1f ms" : "%.0f ms", time);
  return text;
}

std::string describe_slow_link(const std::vector<NodeLink>& links, std::size_t slow) {
  return "node " + links[slow].host + " answers slowly: a round trip of its link takes " +
         describe_milliseconds(links[slow].delay->microseconds) + ", and of the others " +
         describe_milliseconds(median_of_others(links, slow).value_or(0)) +
         " (is its machine overloaded, or its network slow?)";
}

std::string describe_links(const std::vector<NodeLink>& links) {
  std::vector<NodeLink> measured;
  std::copy_if(links.begin(), links.end(), std::back_inserter(measured),
               [](const NodeLink& link) { return link.delay.has_value(); });
  if (measured.size() > kMostShown) {  // the slowest are of interest
    std::stable_sort(measured.begin(), measured.end(), [](const NodeLink& a, const NodeLink& b) {
      return a.delay->microseconds > b.delay->microseconds;
    });
  }
  std::vector<std::string> words;
  for (const NodeLink& link : measured) {
    words.push_back(link.host + " " + describe_milliseconds(link.delay->microseconds));
  }
  return rendezvous::list_of(words, kMostShown);
}

}  // namespace ddp::launcher
