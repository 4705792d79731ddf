// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/machine/control_groups.hpp"

#include <algorithm>

#include "rendezvous/base/text_stream.hpp"

namespace ddp::rendezvous {
namespace {

void add_with_parents(std::vector<ControlGroup>& groups, int version, const std::string& mount, std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  for (;;) {
    groups.push_back({version, path, mount + (path == "/" ? "" : path)});
    if (path.size() <= 1) return;
    path.resize(std::max<std::size_t>(path.rfind('/'), 1));
  }
}

}  // namespace

std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& cgroup_file,
                                         const std::string& mounted_at) {
  std::vector<ControlGroup> groups;
  FileStream file(cgroup_file);
  // A line is "number:controllers:path"; version 2 has number 0 and no controllers.
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || second + 1 >= line.size() || line[second + 1] != '/') continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (names == ",,") {
      add_with_parents(groups, 2, mounted_at, path);
    } else if (names.find("," + controller + ",") != std::string::npos) {
      add_with_parents(groups, 1, mounted_at + "/" + controller, path);
    }
  }
  return groups;
}

}  // namespace ddp::rendezvous
