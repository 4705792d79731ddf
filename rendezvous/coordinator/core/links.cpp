// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/core/links.hpp"

#include <cstdint>
#include <utility>
#include <vector>

#include "rendezvous/base/text.hpp"
#include "rendezvous/net/silence.hpp"

namespace ddp::rendezvous {

void Links::opened(TimePoint now, const AgentLinked& event, CoordinatorActions& actions) {
  if (event.address.empty()) return;  // from this process
  if (unheard_.size() >= max_unheard_) make_room(actions);
  expect_report(now, event.agent, event.address, event.share);
}

void Links::expect_report(TimePoint now, AgentId agent, const std::string& address, const std::string& share) {
  unheard_.emplace(agent, Unheard{now + kFirstReportWithin, address, share});
  if (!next_check_) next_check_ = now + kBetweenSilenceChecks;
}

void Links::make_room(CoordinatorActions& actions) {
  std::vector<OpenConnection> unheard;
  for (const auto& [agent, link] : unheard_) {
    unheard.push_back({.id = static_cast<std::uint64_t>(agent), .share = link.share});
  }
  for (const std::uint64_t chosen : choose_silent(std::move(unheard))) {
    const auto agent = static_cast<AgentId>(chosen);
    const bool was_refused = speakers_.contains(agent);
    actions.push_back(CoordinatorLogLine{"agent link: closed the one from " + unheard_.at(agent).address + ": it " +
                                             (was_refused ? "was refused" : "said nothing after the handshake") +
                                             ", and its place was needed",
                                         true});
    close(agent, actions);
  }
}

void Links::check(TimePoint now, CoordinatorActions& actions) {
  for (auto entry = unheard_.begin(); entry != unheard_.end();) {
    const auto [agent, link] = *entry++;
    if (now < link.until) continue;
    const bool was_refused = speakers_.contains(agent);
    close(agent, actions);
    if (was_refused) continue;
    actions.push_back(CoordinatorLogLine{
        "agent link: closed " + link.address + ": no report within " + to_string(kFirstReportWithin), true});
  }
  next_check_.reset();
  if (!unheard_.empty()) next_check_ = now + kBetweenSilenceChecks;
}

bool Links::is_other_speaker(AgentId agent, const Incarnation& incarnation) const {
  const auto speaker = speakers_.find(agent);
  return speaker != speakers_.end() && speaker->second != incarnation;
}

void Links::close(AgentId agent, CoordinatorActions& actions) {
  actions.push_back(CloseLink{agent});
  speakers_.erase(agent);
  unheard_.erase(agent);
}

void Links::gone(const AgentGone& event, CoordinatorActions& actions) {
  const bool was_refused = speakers_.erase(event.agent) > 0;
  if (const auto link = unheard_.extract(event.agent); link && !was_refused) {
    actions.push_back(CoordinatorLogLine{
        "agent link: the one from " + link.mapped().address + " ended before a report: " + event.why, true});
  }
}

void Links::forgive_sleep(TimePoint::duration slept) {
  for (auto& [agent, link] : unheard_) link.until += slept;
}

}  // namespace ddp::rendezvous
