// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/looks.hpp"

#include <algorithm>

namespace ddp::rendezvous {

Looks::Send Looks::end(Look look) { return {look.asker, LookEnd{look.asked_as, "", std::move(look.facts)}}; }

std::vector<Looks::Send> Looks::begin(TimePoint now, AgentId asker, const LookRequest& request, JobFacts facts,
                                      const Asked& asked) {
  const auto own =
      std::count_if(looks_.begin(), looks_.end(), [asker](const auto& look) { return look.second.asker == asker; });
  if (looks_.size() >= kMostLooks || static_cast<std::size_t>(own) >= kMostLooksOfNode) {
    return {{asker, LookEnd{request.number, "too many programs look at this job at the same time", {}}}};
  }
  Look look{asker, request.number, now + look_within(request.what), asked, std::move(facts)};
  if (asked.empty()) return {end(std::move(look))};
  const std::int64_t number = next_number_++;
  looks_.emplace(number, std::move(look));
  std::vector<Send> sends;
  for (const auto& [agent, incarnation] : asked) {
    sends.push_back({agent, LookRequest{number, request.what, request.text}});
  }
  return sends;
}

std::vector<Looks::Send> Looks::answer(AgentId from, LookAnswer answer) {
  const auto found = looks_.find(answer.number);
  if (found == looks_.end()) return {};  // it came too late
  Look& look = found->second;
  const auto awaited = look.awaited.find(from);
  if (awaited == look.awaited.end()) return {};  // it was not asked, or has answered
  answer.number = look.asked_as;
  answer.node = awaited->second;  // whatever it calls itself
  look.awaited.erase(awaited);
  std::vector<Send> sends = {{look.asker, std::move(answer)}};
  if (!look.awaited.empty()) return sends;
  sends.push_back(end(std::move(look)));
  looks_.erase(found);
  return sends;
}

std::vector<Looks::Send> Looks::gone(AgentId agent) {
  std::vector<Send> sends;
  for (auto entry = looks_.begin(); entry != looks_.end();) {
    Look& look = entry->second;
    const bool was_last = look.awaited.erase(agent) > 0 && look.awaited.empty();
    const bool is_askers = look.asker == agent;
    if (was_last && !is_askers) sends.push_back(end(std::move(look)));
    entry = was_last || is_askers ? looks_.erase(entry) : std::next(entry);
  }
  return sends;
}

std::vector<Looks::Send> Looks::expire(TimePoint now) {
  std::vector<Send> sends;
  for (auto entry = looks_.begin(); entry != looks_.end();) {
    const bool is_over = now >= entry->second.until;
    if (is_over) sends.push_back(end(std::move(entry->second)));
    entry = is_over ? looks_.erase(entry) : std::next(entry);
  }
  return sends;
}

std::optional<TimePoint> Looks::wake_at() const {
  std::optional<TimePoint> soonest;
  for (const auto& [number, look] : looks_) soonest = std::min(soonest.value_or(look.until), look.until);
  return soonest;
}

}  // namespace ddp::rendezvous
