// SPDX-License-Identifier: BSD-3-Clause
// The control groups that a process is in, as folders of the file system that the kernel shows them in.
#pragma once

#include <string>
#include <vector>

namespace ddp::rendezvous {

struct ControlGroup {
  int version = 2;
  std::string path;    // as in /proc/PID/cgroup
  std::string folder;  // where its files are
};

// Returns this process's group of `controller` ("memory", "cpu") and all groups above it, of both versions. In a
// container the paths may lead outside of what is mounted: a folder that does not exist is in the list all the same.
std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& cgroup_file,
                                         const std::string& mounted_at);

}  // namespace ddp::rendezvous
