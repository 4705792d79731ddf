// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/tree/tree_core.hpp"

#include <algorithm>

namespace ddp::launcher {
namespace {

using Hosts = std::vector<std::size_t>;

// Returns the hosts in at most kFanOut shares, whose sizes differ by one at most.
std::vector<Hosts> shares_of(const Hosts& hosts) {
  const std::size_t count = std::min(hosts.size(), TreeCore::kFanOut);
  std::vector<Hosts> shares;
  auto from = hosts.begin();
  for (std::size_t i = 0; i < count; ++i) {
    const auto to = from + static_cast<std::ptrdiff_t>(hosts.size() / count + (i < hosts.size() % count ? 1 : 0));
    shares.emplace_back(from, to);
    from = to;
  }
  return shares;
}

}  // namespace

TreeCore::Actions TreeCore::begin(const Hosts& alone, const Hosts& divided) {
  StartHosts start;
  for (const std::size_t host : alone) {
    put_behind({host});
    start.hosts.push_back(host);
  }
  for (const Hosts& share : shares_of(divided)) {
    put_behind(share);
    start.hosts.push_back(share[0]);
  }
  return {start};
}

void TreeCore::progressed(std::size_t host, Time now) {
  if (is_from_here(host)) hosts_.at(host).last_progress = now;
}

// Returns when a host that is not ready has made no progress for too long; nothing if it is not awaited here.
std::optional<TreeCore::Time> TreeCore::awaited_until(std::size_t host, const OfHost& one) {
  if (one.branch != host || one.is_ready || !one.last_progress) return std::nullopt;
  return *one.last_progress + kReachWithin;
}

Hosts TreeCore::overdue(Time now) const {
  Hosts overdue;
  for (const auto& [host, one] : hosts_) {
    const auto until = awaited_until(host, one);
    if (until && now >= *until) overdue.push_back(host);
  }
  return overdue;
}

std::optional<TreeCore::Time> TreeCore::due() const {
  std::optional<Time> soonest;
  for (const auto& [host, one] : hosts_) {
    const auto until = awaited_until(host, one);
    if (until) soonest = std::min(soonest.value_or(Time::max()), *until);
  }
  return soonest;
}

TreeCore::Actions TreeCore::ready(std::size_t host) {
  if (!is_from_here(host) || hosts_.at(host).is_ready) return {};
  hosts_.at(host).is_ready = true;
  Hosts others = behind(host);
  return others.empty() ? Actions{} : Actions{HandOn{host, std::move(others)}};
}

void TreeCore::got_header(std::size_t host) { hosts_.at(host).has_header = true; }

TreeCore::Actions TreeCore::ended(std::size_t host, const std::string& how) {
  if (!is_from_here(host)) return {};
  OfHost& one = hosts_.at(host);
  const Hosts share = behind(host);
  if (one.has_header) {
    hosts_.erase(host);
    for (const std::size_t other : share) hosts_.erase(other);
    return {Gone{host, how, share}};
  }
  Actions actions;
  StartHosts start;
  const bool was_ready = one.is_ready;
  if (was_ready && !one.was_started_again) {
    one.is_ready = false;
    one.was_started_again = true;
    actions.push_back(StartsAgain{host, how});
    start.hosts.push_back(host);
  } else {
    hosts_.erase(host);
    actions.push_back(Unreached{host, how});
  }
  if (!share.empty()) {
    put_behind(share);
    start.hosts.push_back(share[0]);
    for (const std::size_t other : share) actions.push_back(StartsAgain{other, ""});
  }
  if (!start.hosts.empty()) actions.push_back(start);
  return actions;
}

TreeCore::Actions TreeCore::start_again(const Hosts& alone, const Hosts& share) {
  StartHosts start{alone};
  for (const std::size_t host : alone) put_behind({host});
  put_behind(share);
  if (!share.empty()) start.hosts.push_back(share[0]);
  return {start};
}

TreeCore::Actions TreeCore::unreached(std::size_t host, const std::string& how) {
  const auto known = hosts_.find(host);
  if (known == hosts_.end() || known->second.branch == host) return {};
  known->second = {.branch = host};
  return {StartsAgain{host, how}, StartHosts{{host}}};
}

bool TreeCore::is_from_here(std::size_t host) const {
  const auto known = hosts_.find(host);
  return known != hosts_.end() && known->second.branch == host;
}

bool TreeCore::has_header(std::size_t host) const {
  const auto known = hosts_.find(host);
  return known != hosts_.end() && known->second.has_header;
}

bool TreeCore::may_get_header(std::size_t host) const {
  return is_from_here(host) && hosts_.at(host).is_ready && !hosts_.at(host).has_header;
}

bool TreeCore::is_behind(std::size_t host, std::size_t branch) const {
  const auto known = hosts_.find(host);
  return known != hosts_.end() && known->second.branch == branch && host != branch;
}

std::size_t TreeCore::branch_of(std::size_t host) const {
  const auto known = hosts_.find(host);
  return known == hosts_.end() ? host : known->second.branch;
}

Hosts TreeCore::behind(std::size_t branch) const {
  Hosts others;
  for (const auto& [host, one] : hosts_) {
    if (one.branch == branch && host != branch) others.push_back(host);
  }
  return others;
}

// Its first host is started from here and is to start the others.
void TreeCore::put_behind(const Hosts& share) {
  for (const std::size_t host : share) hosts_[host] = {.branch = share[0]};
}

}  // namespace ddp::launcher
