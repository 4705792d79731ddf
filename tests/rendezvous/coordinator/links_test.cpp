// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/core/links.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <variant>

using namespace ddp::rendezvous;
using std::chrono::seconds;

namespace {

bool closes(const CoordinatorActions& actions, AgentId link) {
  return std::any_of(actions.begin(), actions.end(), [link](const CoordinatorAction& action) {
    const auto* close = std::get_if<CloseLink>(&action);
    return close && close->agent == link;
  });
}

}  // namespace

TEST_CASE("links: one has 5 s for its first report, and 5 s to end after its agent was refused", "[rendezvous][unit]") {
  Links links(1024);
  CoordinatorActions actions;
  const TimePoint start{};
  for (const AgentId link : {2, 3, 4, 5}) links.opened(start, {link, "10.0.0.2"}, actions);
  links.has_node(2);
  links.note_speaker(3, "a stranger");
  links.expect_report(start, 3, "10.0.0.2");
  links.gone({5, "reset"}, actions);
  actions.clear();
  links.check(start + seconds(4), actions);
  CHECK(actions.empty());
  links.check(start + seconds(6), actions);
  CHECK((closes(actions, 3) && closes(actions, 4)));
  CHECK_FALSE((closes(actions, 2) || closes(actions, 5)));
  CHECK(std::get<CoordinatorLogLine>(actions.back()).text == "agent link: closed 10.0.0.2: no report within 5 s");
  CHECK(actions.size() == 3);  // the user hears of the refused one once
  CHECK_FALSE(links.next_check());
}

TEST_CASE("links: of those that may not stay, the oldest of the address with most of them makes room",
          "[rendezvous][unit]") {
  Links links(3);
  CoordinatorActions actions;
  links.opened({}, {2, "10.0.0.2", "2"}, actions);
  links.opened({}, {3, "10.0.0.3", "3"}, actions);
  links.opened({}, {4, "10.0.0.3", "3"}, actions);
  links.opened({}, {5, "10.0.0.5", "5"}, actions);
  CHECK(closes(actions, 3));
  CHECK(std::get<CoordinatorLogLine>(actions.at(0)).text ==
        "agent link: closed the one from 10.0.0.3: it said nothing after the handshake, and its place was needed");
  CHECK(links.unheard() == 3);
  for (const AgentId link : {2, 4, 5}) CHECK_FALSE(closes(actions, link));
}

TEST_CASE("links: one reports for one agent only", "[rendezvous][unit]") {
  Links links(3);
  links.note_speaker(2, "b");
  CHECK_FALSE(links.is_other_speaker(2, "b"));
  CHECK(links.is_other_speaker(2, "c"));
  CHECK_FALSE(links.is_other_speaker(3, "c"));
}
