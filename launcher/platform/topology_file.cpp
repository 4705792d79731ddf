// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/platform/topology_file.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "launcher/text/lower_case.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/slurm_step.hpp"

namespace ddp::launcher {
namespace {

// A switch, or a block.
struct Group {
  std::string name;
  int line = 0;
  std::vector<std::string> nodes, switches;
};

[[noreturn]] void refuse(int line, const std::string& why) {
  rendezvous::invalid_argument("line " + std::to_string(line) + ": " + why);
}

std::vector<std::string> expand(int line, const std::string& list) {
  auto names = rendezvous::expand_hosts(list);
  if (!names) refuse(line, "'" + list + "' is no list of names such as gpu[01-16],login");
  return *std::move(names);
}

// Reads a line without its comment. Returns whether it names a group.
bool read_line(const std::string& text, Group& group) {
  std::istringstream words(text);
  bool is_group = false;
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    if (equals == std::string::npos) refuse(group.line, "'" + word + "' is not KEY=VALUE");
    const std::string key = lower_case(word.substr(0, equals)), value = word.substr(equals + 1);
    if (key == "switchname" || key == "blockname") {
      is_group = true;
      group.name = value;
    } else if (key == "nodes") {
      group.nodes = expand(group.line, value);
    } else if (key == "switches") {
      group.switches = expand(group.line, value);
    } else if (key != "linkspeed" && key != "blocksizes") {
      refuse(group.line, "'" + word + "' is not known; lines are as in Slurm's topology.conf");
    }
  }
  if (!is_group && (!group.nodes.empty() || !group.switches.empty())) {
    refuse(group.line, "there is no SwitchName or BlockName");
  }
  return is_group;
}

std::vector<Group> read_groups(const std::string& text) {
  std::vector<Group> groups;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    Group group;
    group.line = ++number;
    if (read_line(line.substr(0, line.find('#')), group)) groups.push_back(std::move(group));
  }
  return groups;
}

// Numbers the hosts in the order in which one meets them on a walk from the top.
class Walk {
 public:
  explicit Walk(const std::vector<Group>& groups) {
    for (const Group& group : groups) {
      if (!groups_.emplace(group.name, &group).second) refuse(group.line, "'" + group.name + "' is there twice");
    }
    std::set<std::string> below;
    for (const Group& group : groups) below.insert(group.switches.begin(), group.switches.end());
    for (const Group& group : groups) {
      if (!below.contains(group.name)) visit(group);
    }
    for (const Group& group : groups) {
      if (!seen_.contains(group.name)) refuse(group.line, "switch '" + group.name + "' is below itself");
    }
  }
  std::map<std::string, int> places;

 private:
  void visit(const Group& group) {
    if (!seen_.insert(group.name).second) return;  // below two switches
    for (const std::string& host : group.nodes) places.emplace(host, static_cast<int>(places.size()));
    for (const std::string& name : group.switches) {
      const auto other = groups_.find(name);
      if (other == groups_.end()) refuse(group.line, "there is no switch '" + name + "'");
      visit(*other->second);
    }
  }

  std::map<std::string, const Group*> groups_;
  std::set<std::string> seen_;
};

}  // namespace

std::map<std::string, int> host_places(const std::string& text) {
  std::map<std::string, int> places = Walk(read_groups(text)).places;
  if (places.empty()) rendezvous::invalid_argument("it names no nodes: lines are as in Slurm's topology.conf");
  return places;
}

std::map<std::string, int> read_host_places(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    rendezvous::invalid_argument("--topology " + path + ": " + std::strerror(errno));
  try {
    return host_places(text.str());
  } catch (const rendezvous::Error& error) {
    rendezvous::invalid_argument("--topology " + path + ": " + error.what());
  }
}

}  // namespace ddp::launcher
