// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/core/roster.hpp"

#include <catch2/catch.hpp>

using namespace ddp::rendezvous;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

AgentState idle(const std::string& host, int round = 0, int node_rank = 0) {
  AgentState state;
  state.incarnation = state.host = host;
  state.node_rank = node_rank;
  state.round = round;
  return state;
}

AgentState running(const std::string& host, int round) {
  AgentState state = idle(host, round);
  state.phase = WorkersPhase::Running;
  return state;
}

AgentState succeeded(const std::string& host, int round) {
  AgentState state = idle(host, round);
  state.succeeded = true;
  return state;
}

constexpr TimePoint kNow{seconds(100)};

// Nodes a, b and c on links 1, 2 and 3; a is this process's own.
struct Nodes {
  explicit Nodes(bool node_ranks_given = false)
      : roster({.own = "a", .node_ranks_given = node_ranks_given, .lost_after = seconds(15)}) {}

  void come() {
    roster.add(kNow, 1, idle("a"), "");
    roster.add(kNow, 2, idle("b", 0, 1), "10.0.0.2");
    roster.add(kNow, 3, idle("c", 0, 2), "10.0.0.3");
  }
  void report(AgentId link, const AgentState& state) { roster.update(kNow, link, state, ""); }

  Roster roster;
};

// What the counts must be, counted by hand.
void check_counts(const Roster& roster) {
  int ready = 0, spares = 0, members = 0, idle = 0, succeeded = 0, cut = 0;
  for (const auto& [incarnation, node] : roster.nodes()) {
    ready += roster.is_ready(node);
    spares += roster.is_spare(node);
    members += node.seat >= 0;
    idle += roster.is_idle(node);
    succeeded += roster.has_succeeded(node);
    cut += node.cut.has_value();
  }
  CHECK(roster.ready() == ready);
  CHECK(roster.spares() == spares);
  CHECK(roster.members() == members);
  CHECK(roster.idle() == idle);
  CHECK(roster.succeeded() == succeeded);
  CHECK(roster.has_broken_link() == (cut > 0));
}

}  // namespace

TEST_CASE("roster: a node that is idle, reachable and clean is ready", "[rendezvous][unit]") {
  Nodes nodes;
  nodes.come();
  CHECK(nodes.roster.ready() == 3);
  CHECK(nodes.roster.spares() == 3);
  nodes.report(1, running("a", 1));
  CHECK(nodes.roster.ready() == 2);
  AgentState stuck = idle("b");
  stuck.unkillable = {77};
  nodes.report(2, stuck);
  CHECK(nodes.roster.ready() == 1);
  nodes.roster.mark_cut("c", kNow, "reset");
  CHECK(nodes.roster.ready() == 0);
  CHECK(nodes.roster.has_broken_link());
}

TEST_CASE("roster: a node is idle once it has reported so for the newest round", "[rendezvous][unit]") {
  Nodes nodes;
  nodes.come();
  nodes.roster.begin_round(1, {"a", "b"});
  CHECK(nodes.roster.members() == 2);
  CHECK(nodes.roster.spares() == 1);
  CHECK(nodes.roster.idle() == 0);  // they have not heard of the round yet
  nodes.report(1, succeeded("a", 1));
  nodes.report(2, idle("b", 1));
  nodes.report(3, succeeded("c", 1));
  CHECK(nodes.roster.idle() == 2);
  CHECK(nodes.roster.succeeded() == 1);  // c is not a member
  nodes.roster.begin_round(2, {"a", "c"});
  CHECK(nodes.roster.idle() == 0);
  CHECK(nodes.roster.succeeded() == 0);
}

TEST_CASE("roster: a member that is removed leaves its seat empty", "[rendezvous][unit]") {
  Nodes nodes;
  nodes.come();
  nodes.roster.begin_round(1, {"a", "b", "c"});
  nodes.roster.remove("b");
  CHECK(nodes.roster.seats() == std::vector<Incarnation>{"a", "", "c"});
  CHECK(nodes.roster.members() == 2);
  CHECK(nodes.roster.find("b") == nullptr);
  CHECK(nodes.roster.on_link(2) == nullptr);
}

TEST_CASE("roster: a newer link replaces the one before and is up", "[rendezvous][unit]") {
  Nodes nodes;
  nodes.come();
  nodes.roster.mark_cut("b", kNow, "reset");
  CHECK(nodes.roster.on_link(2) == nullptr);
  nodes.roster.update(kNow, 4, idle("b"), "10.0.0.4");
  REQUIRE(nodes.roster.on_link(4) == nodes.roster.find("b"));
  CHECK_FALSE(nodes.roster.has_broken_link());
  CHECK(describe(nodes.roster.at("b")) == "b (10.0.0.4)");
  nodes.roster.update(kNow, 5, idle("b"), "10.0.0.4");  // the one before was not seen to break
  CHECK(nodes.roster.on_link(4) == nullptr);
  CHECK(nodes.roster.on_link(5) == nodes.roster.find("b"));
}

TEST_CASE("roster: a node whose user stops it is no longer ready", "[rendezvous][unit]") {
  Nodes nodes;
  nodes.come();
  nodes.roster.mark_leaving("b");
  CHECK(nodes.roster.ready() == 2);
  CHECK_FALSE(nodes.roster.is_spare(nodes.roster.at("b")));
}

TEST_CASE("roster: a node rank belongs to the first that claims it, then to the next", "[rendezvous][unit]") {
  Nodes nodes(true);
  nodes.come();
  nodes.roster.add(kNow, 4, idle("y", 0, 1), "");
  nodes.roster.add(kNow, 5, idle("x", 0, 1), "");
  CHECK(nodes.roster.ready() == 3);
  CHECK(nodes.roster.at("x").holder == "b");
  CHECK(nodes.roster.challengers_of("b") == std::vector<Incarnation>{"x", "y"});
  nodes.roster.remove("b");
  CHECK(nodes.roster.at("y").holder.empty());  // it came before x
  CHECK(nodes.roster.at("x").holder == "y");
  CHECK(nodes.roster.is_held(1));
  CHECK(nodes.roster.ready() == 3);
  nodes.roster.remove("x");
  CHECK(nodes.roster.is_held(1));
  nodes.roster.remove("y");
  CHECK_FALSE(nodes.roster.is_held(1));
}

TEST_CASE("roster: node ranks that are not given have no holder", "[rendezvous][unit]") {
  Nodes nodes;
  nodes.roster.add(kNow, 1, idle("a", 0, 1), "");
  nodes.roster.add(kNow, 2, idle("b", 0, 1), "");
  CHECK_FALSE(nodes.roster.is_held(1));
  CHECK(nodes.roster.ready() == 2);
}

TEST_CASE("roster: a silent node expires after lost_after, the own one never", "[rendezvous][unit]") {
  Nodes nodes;
  nodes.come();
  CHECK(nodes.roster.expired(kNow + seconds(15) - milliseconds(1)).empty());
  nodes.roster.mark_heard("c", kNow + seconds(1));
  const auto expired = nodes.roster.expired(kNow + seconds(15));
  REQUIRE(expired.size() == 1);
  CHECK(expired[0].node == "b");
  CHECK(expired[0].silent_since == kNow);
  CHECK_FALSE(expired[0].link_broke);
}

TEST_CASE("roster: a node whose link broke expires after the reconnect window", "[rendezvous][unit]") {
  Nodes nodes;
  nodes.come();
  nodes.roster.mark_heard("b", kNow + seconds(2));
  nodes.roster.mark_cut("b", kNow + seconds(3), "reset");
  CHECK(nodes.roster.expired(kNow + seconds(3) + kReconnectWindow - milliseconds(1)).empty());
  const auto expired = nodes.roster.expired(kNow + seconds(3) + kReconnectWindow);
  REQUIRE(expired.size() == 1);
  CHECK(expired[0].link_broke);
  CHECK(expired[0].silent_since == kNow + seconds(3));
}

TEST_CASE("roster: a link that breaks long after its node was heard was silent since then", "[rendezvous][unit]") {
  Nodes nodes;
  nodes.come();
  nodes.roster.mark_cut("b", kNow + seconds(5), "reset");
  CHECK(nodes.roster.expired(kNow + seconds(8)).at(0).silent_since == kNow);
  nodes.roster.update(kNow + seconds(6), 4, idle("b"), "");
  CHECK(nodes.roster.at("b").unheard_since == kNow);  // what it tells may have happened since
  nodes.roster.mark_heard("b", kNow + seconds(6));
  nodes.roster.update(kNow + seconds(8), 4, idle("b"), "");
  CHECK(nodes.roster.at("b").unheard_since == kNow + seconds(8));
}

TEST_CASE("roster: a heartbeat that ends a silence tells nothing about it, a report or a broken link after it does",
          "[rendezvous][unit]") {
  Nodes nodes;
  nodes.come();
  const auto spoke = kNow + seconds(5);
  for (const char* host : {"b", "c"}) nodes.roster.mark_heard(host, spoke);
  nodes.roster.update(spoke + milliseconds(1), 2, idle("b"), "");
  CHECK(nodes.roster.at("b").unheard_since == kNow);
  nodes.roster.mark_cut("c", spoke + milliseconds(1), "reset");
  CHECK(nodes.roster.expired(spoke + milliseconds(1) + kReconnectWindow).at(0).silent_since == kNow);
  nodes.roster.forgive_sleep(seconds(60));
  CHECK(nodes.roster.expired(spoke + milliseconds(1) + kReconnectWindow + seconds(60)).at(0).silent_since ==
        kNow + seconds(60));
  nodes.roster.mark_heard("b", spoke + seconds(60));
  nodes.roster.update(spoke + seconds(62), 2, idle("b"), "");
  CHECK(nodes.roster.at("b").unheard_since == spoke + seconds(62));
}

TEST_CASE("roster: a node that says nothing once this process goes on was silent already", "[rendezvous][unit]") {
  Nodes nodes;
  nodes.come();
  nodes.roster.forgive_sleep(seconds(60));
  nodes.roster.mark_heard("c", kNow + seconds(60));
  for (const char* host : {"b", "c"}) nodes.roster.mark_cut(host, kNow + seconds(62), "reset");
  const milliseconds slept_again(GENERATE(0, 10000));
  if (slept_again.count() > 0) nodes.roster.forgive_sleep(slept_again);
  const auto expired = nodes.roster.expired(kNow + seconds(62) + kReconnectWindow + slept_again);
  REQUIRE(expired.size() == 2);
  CHECK(expired[0].silent_since == kNow + seconds(60) + slept_again);
  CHECK(expired[1].silent_since == kNow + seconds(62) + slept_again);
}

TEST_CASE("roster: while this process was stopped no node was silent", "[rendezvous][unit]") {
  Nodes nodes;
  nodes.come();
  nodes.roster.mark_cut("c", kNow, "reset");
  nodes.roster.forgive_sleep(seconds(60));
  CHECK(nodes.roster.expired(kNow + seconds(60) + kReconnectWindow - milliseconds(1)).empty());
  CHECK(nodes.roster.expired(kNow + seconds(60) + kReconnectWindow).size() == 1);
  CHECK(nodes.roster.expired(kNow + seconds(75)).size() == 2);
}

TEST_CASE("roster: after any sequence of changes the counts are right", "[rendezvous][unit]") {
  const unsigned seed = GENERATE(1U, 2U, 3U, 4U, 5U);
  CAPTURE(seed);
  unsigned state = seed;
  const auto below = [&state](unsigned count) {
    state = state * 1664525U + 1013904223U;
    return static_cast<int>((state >> 16) % count);
  };
  Roster roster({.own = "n0", .node_ranks_given = true, .lost_after = seconds(15)});
  int round = 0, links = 0;
  for (int i = 0; i < 2000; ++i) {
    const Incarnation host = "n" + std::to_string(below(12));
    const Node* const node = roster.find(host);
    switch (below(8)) {
      case 0:
        if (node) roster.remove(host);
        break;
      case 1:
        if (node) roster.mark_cut(host, kNow, "reset");
        break;
      case 2:
        if (node) roster.mark_leaving(host);
        break;
      case 3: {
        std::vector<Incarnation> seats;
        for (const auto& [incarnation, other] : roster.nodes()) {
          if (roster.is_ready(other)) seats.push_back(incarnation);
        }
        if (below(4) == 0) roster.begin_round(++round, seats);
        break;
      }
      default: {
        AgentState report = idle(host, round - below(2), node ? node->state.node_rank : below(8));
        report.phase = static_cast<WorkersPhase>(below(3));
        report.succeeded = below(2) == 0;
        if (below(8) == 0) report.unkillable = {77};
        if (!node) roster.add(kNow, ++links, report, "");
        if (node) roster.update(kNow, below(3) == 0 ? ++links : node->link, report, "");
      }
    }
    if (i % 20 == 0) check_counts(roster);
  }
}
