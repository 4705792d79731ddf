// SPDX-License-Identifier: BSD-3-Clause
// How much memory the control groups above this process leave it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ddp::rendezvous {

struct MemoryLeft {
  std::string group;  // the path of the control group
  std::uint64_t limit = 0;
  std::uint64_t bytes = 0;  // left below the limit; what the kernel can take back from its file cache counts as left
};

// Returns what the control group with the least memory left has, of those of this process and all above them; nothing
// if none has a limit. Understands both versions of control groups. The files can be others for tests.
std::optional<MemoryLeft> least_memory_left(const std::string& cgroup_file = "/proc/self/cgroup",
                                            const std::string& mounted_at = "/sys/fs/cgroup");

}  // namespace ddp::rendezvous
