// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/tree/share.hpp"

#include <set>

#include "launcher/hosts/wire/pairs.hpp"
#include "launcher/text/ranges.hpp"

namespace ddp::launcher {
namespace {

constexpr int kMostHosts = 100'000;

void take_of_host(Host& host, const std::string& name, const std::string& value) {
  if (name == "name") {
    host.name = value;
  } else if (name == "user") {
    host.user = value;
  } else if (name == "port") {
    host.port = static_cast<std::uint16_t>(number_of(name, value, 1, 65535));
  } else if (name == "slots") {
    host.slots = number_of(name, value, 1, 100'000);
  } else if (name == "slot") {
    host.chosen_slots.push_back(number_of(name, value, 0, 100'000));
  } else {
    refuse_pairs("the name \"" + name + "\", which is not known");
  }
}

void check(const Share& share) {
  std::set<std::size_t> ranks;
  for (const RankedHost& one : share.hosts) {
    if (!can_be_called(one.host)) refuse_pairs("the host \"" + one.host.name + "\", which is no name of a host");
    if (!ranks.insert(one.rank).second) refuse_pairs("two hosts of one node rank");
  }
  if (share.agent.empty() || share.hosts.empty()) refuse_pairs("no launch agent or no hosts");
}

}  // namespace

std::string to_text(const Share& share) {
  PairWriter pairs;
  for (const std::string& word : share.agent) pairs.add("agent", word);
  for (const std::string& variable : share.variables) pairs.add("variable", variable);
  for (const auto& [rank, host] : share.hosts) {
    pairs.add("rank", static_cast<long>(rank));
    pairs.add("name", host.name);
    if (!host.user.empty()) pairs.add("user", host.user);
    if (host.port) pairs.add("port", *host.port);
    if (host.slots) pairs.add("slots", *host.slots);
    for (const int slot : host.chosen_slots) pairs.add("slot", slot);
  }
  return pairs.take();
}

Share share_from(std::string_view text) {
  Share share;
  while (!text.empty()) {
    const std::string name = take_word(text);
    std::string value = take_word(text);
    if (name == "agent") {
      share.agent.push_back(std::move(value));
    } else if (name == "variable") {
      share.variables.push_back(variable_of(value));
    } else if (name == "rank") {
      share.hosts.push_back({static_cast<std::size_t>(number_of(name, value, 0, kMostHosts)), {}});
    } else if (share.hosts.empty()) {
      refuse_pairs("the name \"" + name + "\" before a host");
    } else {
      take_of_host(share.hosts.back().host, name, value);
    }
  }
  check(share);
  return share;
}

JobHeader header_for(JobHeader header, const RankedHost& host) {
  header.place.node_rank = static_cast<int>(host.rank);
  header.place.workers = host.host.slots;
  header.place.gpus = comma_list(host.host.chosen_slots);
  return header;
}

}  // namespace ddp::launcher
