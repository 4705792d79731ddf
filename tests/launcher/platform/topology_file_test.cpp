// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/platform/topology_file.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <string>

#include "rendezvous/base/error.hpp"
#include "tests/support/process.hpp"

using Catch::Matchers::Contains;
using Catch::Matchers::Message;
using ddp::launcher::host_places;
using ddp::launcher::read_host_places;

TEST_CASE("topology file: hosts below one switch follow one another, and so do switches below one switch",
          "[launcher][unit]") {
  const auto places = host_places(
      "# leaf switches in no order\n"
      "SwitchName=leaf2 Nodes=gpu[1,3]\n"
      "SwitchName=leaf3 Nodes=gpu[5-6] LinkSpeed=100\n"
      "SwitchName=leaf1 Nodes=gpu[2,4]  # the second rack\n"
      "\n"
      "switchname=spine Switches=leaf[1-3]\n");
  CHECK(places ==
        std::map<std::string, int>{{"gpu2", 0}, {"gpu4", 1}, {"gpu1", 2}, {"gpu3", 3}, {"gpu5", 4}, {"gpu6", 5}});
}

TEST_CASE("topology file: blocks are in the order of the file", "[launcher][unit]") {
  const auto places = host_places("BlockName=b2 Nodes=n[3-4]\nBlockName=b1 Nodes=n[1-2]\nBlockSizes=2\n");
  CHECK(places == std::map<std::string, int>{{"n3", 0}, {"n4", 1}, {"n1", 2}, {"n2", 3}});
}

TEST_CASE("topology file: what cannot be read is refused with its line", "[launcher][unit]") {
  const auto refused = [](const std::string& text, const std::string& why) {
    CHECK_THROWS_WITH(host_places(text), Contains(why));
  };
  refused("", "it names no nodes");
  refused("SwitchName=a Nodes=n1\nfoo", "line 2: 'foo' is not KEY=VALUE");
  refused("SwitchName=a Knoten=n1", "line 1: 'Knoten=n1' is not known");
  refused("Nodes=n1", "line 1: there is no SwitchName or BlockName");
  refused("SwitchName=a Nodes=n[1", "line 1: 'n[1' is no list of names");
  refused("SwitchName=a Switches=b", "line 1: there is no switch 'b'");
  refused("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "line 2: 'a' is there twice");
  refused("SwitchName=a Switches=b\nSwitchName=b Switches=a", "line 1: switch 'a' is below itself");
  CHECK_THROWS_WITH(read_host_places("/no/such/file"), Contains("--topology /no/such/file: No such file"));
  const ddp::testing::TemporaryFolder folder;
  std::ofstream(folder / "t") << "foo\n";
  CHECK_THROWS_WITH(read_host_places(folder / "t"), Contains("/t: line 1: 'foo' is not KEY=VALUE"));
}
