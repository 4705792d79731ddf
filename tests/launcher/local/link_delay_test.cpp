// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/link_delay.hpp"

#include <catch2/catch.hpp>
#include <random>

using namespace ddp::launcher;
using namespace std::chrono_literals;
using Slow = std::vector<std::size_t>;

namespace {

constexpr int kAll = static_cast<int>(kRoundTrips);

NodeLink link(const std::string& host, std::int64_t microseconds, int round_trips = kAll) {
  return {host, LinkDelay{microseconds, round_trips}};
}
const NodeLink kCoordinator = {"a", std::nullopt};

// The links of a job in which each node sends a heartbeat a second.
struct Job {
  explicit Job(std::size_t nodes) : links(nodes) {}

  // Lets a second pass, in which the heartbeat of node n takes time(n).
  template <typename Time>
  Slow second(Time time) {
    std::vector<NodeLink> said = {kCoordinator};
    for (std::size_t i = 0; i < links.size(); ++i) {
      links[i].add(std::chrono::nanoseconds(static_cast<std::int64_t>(time(i) * 1e6)));
      said.push_back({"b", links[i].delay()});
    }
    return slow_links(said);
  }

  std::vector<RoundTrips> links;
};

}  // namespace

TEST_CASE("link delay: the shortest of the newest 20 round trips counts", "[launcher][unit]") {
  RoundTrips trips;
  CHECK_FALSE(trips.delay());
  trips.add(300us);
  trips.add(90ms);
  CHECK(trips.delay() == LinkDelay{300, 2});
  for (int i = 0; i < kAll - 1; ++i) trips.add(90ms);
  CHECK(trips.delay() == LinkDelay{90'000, kAll});
  trips.clear();
  CHECK_FALSE(trips.delay());
}

TEST_CASE("link delay: a node is slow whose link takes long, and much longer than most others", "[launcher][unit]") {
  CHECK(slow_links({kCoordinator, link("b", 400), link("c", 105'000)}) == Slow{2});
  CHECK(slow_links({kCoordinator, link("b", 400), link("c", 105'000), link("d", 90'000), link("e", 300),
                    link("f", 500)}) == Slow{2, 3});
  CHECK(slow_links({kCoordinator, link("b", 400), link("c", 49'000)}).empty());      // short enough
  CHECK(slow_links({kCoordinator, link("b", 30'000), link("c", 105'000)}).empty());  // not much longer
  CHECK(slow_links({kCoordinator, link("b", 105'000)}).empty());                     // nothing to compare it with
  CHECK(slow_links({kCoordinator, link("b", 400), link("c", 105'000, kAll - 1)}).empty());  // not known well enough
  CHECK(slow_links({kCoordinator, link("b", 400, kAll - 1), link("c", 105'000)}).empty());  // neither are the others
  CHECK(slow_links({kCoordinator, link("b", 90'000), link("c", 100'000), link("d", 400)}).empty());  // most are
  CHECK(slow_links({}).empty());
}

TEST_CASE("link delay: it is said by how much a link stands out, and what all take", "[launcher][unit]") {
  const std::vector<NodeLink> links = {kCoordinator, link("b", 400), link("c", 105'200)};
  CHECK(describe_slow_link(links, 2) ==
        "node c answers slowly: a round trip of its link takes 105 ms, and of the others 0.40 ms (is its machine "
        "overloaded, or its network slow?)");
  CHECK(describe_links(links) == "b 0.40 ms, c 105 ms");
  CHECK(describe_links({kCoordinator}).empty());
  std::vector<NodeLink> many(100, link("x", 300));
  many.back() = link("late", 4'210);
  CHECK_THAT(describe_links(many), Catch::StartsWith("late 4.2 ms, x 0.30 ms, ") && Catch::Contains(" 84 more"));
}

TEST_CASE("link delay: a link that becomes slow is named after 20 answers, and no longer after one fast answer",
          "[launcher][unit]") {
  Job job(3);
  for (int i = 0; i < kAll; ++i) CHECK(job.second([](std::size_t) { return 0.3; }).empty());
  const auto slow = [](std::size_t node) { return node == 1 ? 105.0 : 0.3; };
  for (int i = 0; i < kAll - 1; ++i) CHECK(job.second(slow).empty());
  for (int i = 0; i < 60; ++i) CHECK(job.second(slow) == Slow{2});
  CHECK(job.second([](std::size_t) { return 0.3; }).empty());
  for (int i = 0; i < kAll - 1; ++i) CHECK(job.second(slow).empty());
  CHECK(job.second(slow) == Slow{2});
}

TEST_CASE("link delay: an hour of busy, uneven and jittery nodes names none", "[launcher][unit]") {
  const unsigned seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::exponential_distribution<double> often(1.0);
  std::bernoulli_distribution stalls(0.2);
  // Milliseconds that the answers of a node take, on top of 0.3: its machine is overloaded, in bursts that last some
  // seconds, and one in five answers waits for a second.
  const auto busy = [&](double mean) { return 0.3 + mean * often(random) + (stalls(random) ? 1000 : 0); };
  for (const double mean : {1.0, 10.0, 20.0}) {
    Job job(7);
    int named = 0;
    for (int second = 0; second < 3600; ++second) {
      const std::size_t burst = static_cast<std::size_t>(second / 5) % 7;  // this node's machine is worst
      named += job.second([&](std::size_t node) {
                    return busy(node == burst ? 2 * mean : node < 3 ? mean : 0.1);
                  }).empty()
                   ? 0
                   : 1;
    }
    CHECK(named == 0);
  }
}
