// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/network.hpp"

#include <algorithm>

namespace ddp::sim {

namespace {

constexpr std::size_t index(Way way) { return static_cast<std::size_t>(way); }

}  // namespace

LinkId Network::open(Time now, int process, int machine, bool local, int to) {
  Link link;
  link.coordinators_machine = to;
  link.process = process;
  link.machine = machine;
  link.local = local;
  link.newest = {now, now};
  links_.push_back(link);
  return links() - 1;
}

Duration Network::delay() {
  const Duration most = plan_.delay * (random_.percent(plan_.slow_percent) ? 10 : 1);
  return random_.between(std::chrono::microseconds(20), most);
}

std::optional<Time> Network::arrival(Time now, LinkId id, Way way) {
  Link& link = this->link(id);
  if (link.cut || link.vanishes[index(way)]) return std::nullopt;
  Time time =
      now + (link.local ? random_.between(std::chrono::microseconds(10), std::chrono::microseconds(200)) : delay());
  if (const Time until = blocked_until(link.machine, link.coordinators_machine, way); !link.local && until > now) {
    time = until + random_.between(Duration(0), milliseconds(800));  // TCP retransmits it
  }
  time = std::max(time, link.newest[index(way)] + Duration(1));
  link.newest[index(way)] = time;
  return time;
}

void Network::block(int machine, Lost lost, Time until) {
  for (const Way way : {Way::Up, Way::Down}) {
    if (lost == (way == Way::Up ? ToAgent : ToCoordinator)) continue;
    Time& blocked = blocked_[index(way)][machine];
    blocked = std::max(blocked, until);
  }
}

Time Network::blocked_until(int machine, int to, Way way) const {
  Time until;
  for (const int which : {machine, to}) {
    const auto blocked = blocked_[index(way)].find(which);
    if (blocked != blocked_[index(way)].end()) until = std::max(until, blocked->second);
  }
  return until;
}

Time Network::open_since(int machine, int to) const {
  return std::max(blocked_until(machine, to, Way::Up), blocked_until(machine, to, Way::Down));
}

}  // namespace ddp::sim
