// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/coordination/leader_note.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <variant>

using namespace ddp::launcher;

namespace {

const LeaderNote kNote = {.node = "5d1f", .host = "node0", .addresses = {"10.0.0.1", "fd00::1"}, .port = 40313};

std::string why_none(const std::string& text) {
  const auto read = read_leader_note(text);
  const auto* why = std::get_if<std::string>(&read);
  return why ? *why : "it was believed";
}

}  // namespace

TEST_CASE("leader note: what is written is read", "[launcher][unit]") {
  CHECK(text_of(kNote) == "node 5d1f\nhost node0\naddress 10.0.0.1\naddress fd00::1\nport 40313\n");
  CHECK(std::get<LeaderNote>(read_leader_note(text_of(kNote))) == kNote);
}

TEST_CASE("leader note: what leads nowhere, or cannot be shown, is none", "[launcher][unit]") {
  const std::string rest = "host a\naddress 10.0.0.1\nport 1\n";
  CHECK(why_none("node n\n" + rest) == "it was believed");
  for (const std::string& text :
       {std::string(), std::string("node n\n"), "node n\n" + rest + "more 1\n", "node n\nnode m\n" + rest,
        "node \x1b[2J\n" + rest, "node n n\n" + rest, std::string("node n\0\n", 8) + rest,
        std::string("node n\nhost a\naddress somewhere.example\nport 1\n"),
        std::string("node n\nhost a\naddress 0.0.0.0\nport 1\n"), std::string("node n\nhost a\naddress ::\nport 1\n"),
        std::string("node n\nhost a\naddress 10.0.0.1\nport 0\n"),
        std::string("node n\nhost a\naddress 10.0.0.1\nport 65536\n"), std::string("node n\nhost a\nport 1\n"),
        "node " + std::string(300, 'n') + "\n" + rest, "node n\n" + rest + std::string(9000, '\n')}) {
    CAPTURE(text);
    CHECK(why_none(text) != "it was believed");
  }
  std::string many = "node n\nhost a\nport 1\n";
  for (int i = 0; i < 65; ++i) many += "address 10.0.0.1\n";
  CHECK(why_none(many) == "line 68 is strange");
}
