// SPDX-License-Identifier: BSD-3-Clause
// Which MASTER_ADDR the workers of a round get, from how each node reached the coordinator.
#include <catch2/catch.hpp>

#include "rendezvous/coordinator/core/coordinator_core.hpp"

using namespace ddp::rendezvous;

namespace {

// One node: the endpoint's host as it spells it, where its link leads, where it arrives.
struct Way {
  std::string spelled, leads_to, arrives_at = {};
  std::string host = {};  // empty: a machine of its own
};

struct Chosen {
  std::string address;  // on all nodes
  std::string said;
};

// Returns what the nodes get in round 1. The first one coordinates. An address may be given.
Chosen chosen(const std::vector<Way>& ways, const std::string& given = "") {
  const int nodes = static_cast<int>(ways.size());
  const JobShape job = {.id = "j", .min_nodes = nodes, .max_nodes = nodes};
  CoordinatorCore core({.job = job, .epoch = "e", .own_incarnation = "0"});
  std::vector<CoordinatorAction> actions;
  for (int i = 0; i < nodes; ++i) {
    const Way& way = ways[static_cast<std::size_t>(i)];
    AgentState state;
    state.job = job;
    state.incarnation = std::to_string(i);
    state.host = way.host.empty() ? "h" + std::to_string(i) : way.host;
    state.addresses = {"10.0.0." + state.host};
    state.endpoint_host = way.spelled;
    state.coordinator_address = way.leads_to;
    state.slots = 1;
    core.step({}, AgentReported{i, state, i == 0 ? "" : "10.0.0.9", way.arrives_at}, actions);
  }
  actions.clear();
  core.step({}, StoreOpened{1, given, 1000}, actions);
  Chosen result;
  int runs = 0;
  for (const CoordinatorAction& action : actions) {
    if (const auto* line = std::get_if<CoordinatorLogLine>(&action)) result.said += line->text;
    const auto* send = std::get_if<SendDirective>(&action);
    if (!send || send->directive.kind != Directive::Kind::Run) continue;
    const std::string& address = send->directive.assignment.master_addr;
    if (runs++ == 0) result.address = address;
    CHECK(address == result.address);
  }
  CHECK(runs == nodes);
  return result;
}

}  // namespace

TEST_CASE("MASTER_ADDR: the endpoint's host, if all nodes spell it alike and arrive where it leads",
          "[rendezvous][unit]") {
  const Chosen by_name = chosen({{"node0", "10.0.0.1"}, {"node0", "10.0.0.1", "10.0.0.1"}});
  CHECK(by_name.address == "node0");
  CHECK(by_name.said.empty());
  CHECK(chosen({{"10.0.0.1", "10.0.0.1"}, {"10.0.0.1", "10.0.0.1", "10.0.0.1"}}).address == "10.0.0.1");
  // A name of several addresses, of which each node takes one of its network.
  const Chosen several =
      chosen({{"node0", "10.0.0.1"}, {"node0", "10.0.0.1", "10.0.0.1"}, {"node0", "10.0.1.1", "10.0.1.1"}});
  CHECK(several.address == "node0");
  CHECK(several.said.empty());
  // A tunnel to the coordinator's loopback.
  CHECK(chosen({{"localhost", "127.0.0.1"}, {"localhost", "127.0.0.1", "127.0.0.1"}}).address == "localhost");
}

TEST_CASE("MASTER_ADDR: localhost stays localhost while all nodes are on one machine", "[rendezvous][unit]") {
  const std::string one = "a";
  CHECK(chosen({{"localhost", "127.0.0.1", "", one}, {"localhost", "127.0.0.1", "127.0.0.1", one}}).address ==
        "localhost");
  CHECK(chosen({{"127.0.0.1", "127.0.0.1", "", one}, {"localhost", "127.0.0.1", "127.0.0.1", one}}).address ==
        "127.0.0.1");
  CHECK(chosen({{"", "", "", one}, {"", "10.0.0.1", "10.0.0.1", one}}).address == "127.0.0.1");
  // A node on the coordinator's machine does not count where others come from elsewhere.
  CHECK(chosen({{"localhost", "127.0.0.1", "", one},
                {"localhost", "127.0.0.1", "127.0.0.1", one},
                {"node0", "10.0.0.1", "10.0.0.1"}})
            .address == "10.0.0.1");
}

TEST_CASE("MASTER_ADDR: else the one address at which all links arrive", "[rendezvous][unit]") {
  CHECK(chosen({{"localhost", "127.0.0.1"}, {"node0", "10.0.0.1", "10.0.0.1"}, {"10.0.0.1", "10.0.0.1", "10.0.0.1"}})
            .address == "10.0.0.1");
  // Debian's name of the machine itself, a name that leads to another interface first, one that leads nowhere here.
  for (const std::string leads_to : {"127.0.1.1", "10.0.1.1", ""}) {
    const Chosen result = chosen({{"node0", leads_to}, {"node0", "10.0.0.1", "10.0.0.1"}});
    CHECK(result.address == "10.0.0.1");
    CHECK(result.said.empty());
  }
}

TEST_CASE("MASTER_ADDR: each node's own, with a warning, if they have none in common", "[rendezvous][unit]") {
  const Chosen two =
      chosen({{"localhost", "127.0.0.1"}, {"10.0.0.1", "10.0.0.1", "10.0.0.1"}, {"10.0.1.1", "10.0.1.1", "10.0.1.1"}});
  CHECK(two.address.empty());
  CHECK(two.said.find("MASTER_ADDR is not the same on all nodes") == 0);
  CHECK(two.said.find("(h1 by 10.0.0.1, h2 by 10.0.1.1)") != std::string::npos);
  // The network translates the address: what this machine sees is of no use to the others.
  const Chosen translated = chosen({{"public", ""}, {"public", "192.0.2.1", "172.17.0.2"}});
  CHECK(translated.address.empty());
  CHECK(translated.said.find("(h1 by 192.0.2.1, which is 172.17.0.2 here)") != std::string::npos);
}

TEST_CASE("MASTER_ADDR: an address that was given is taken as it is", "[rendezvous][unit]") {
  const Chosen result = chosen({{"localhost", "127.0.0.1"}, {"node0", "10.0.0.1", "10.0.0.1"}}, "10.0.9.9");
  CHECK(result.address == "10.0.9.9");
  CHECK(result.said.empty());
}
