// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/machine/memory_left.hpp"

#include "rendezvous/base/text_stream.hpp"
#include "rendezvous/machine/control_groups.hpp"

namespace ddp::rendezvous {
namespace {

std::optional<std::uint64_t> read_number(const std::string& file) {
  FileStream in(file);
  std::uint64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;  // absent, or "max"
}

// Returns the bytes of files that the kernel has cached for this group and can drop.
std::uint64_t cached_files(const std::string& file, const std::string& prefix) {
  FileStream in(file);
  std::uint64_t sum = 0;
  std::string name;
  for (std::uint64_t value = 0; in >> name >> value;) {
    if (name == prefix + "active_file" || name == prefix + "inactive_file") sum += value;
  }
  return sum;
}

std::optional<MemoryLeft> left_in(const ControlGroup& group) {
  const bool v2 = group.version == 2;
  const auto limit = read_number(group.folder + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto used = read_number(group.folder + (v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !used || *limit >= std::uint64_t{1} << 62) return std::nullopt;  // version 1's "no limit"
  const std::uint64_t cached = cached_files(group.folder + "/memory.stat", v2 ? "" : "total_");
  const std::uint64_t needed = *used > cached ? *used - cached : 0;
  return MemoryLeft{group.path, *limit, *limit > needed ? *limit - needed : 0};
}

}  // namespace

std::optional<MemoryLeft> least_memory_left(const std::string& cgroup_file, const std::string& mounted_at) {
  std::optional<MemoryLeft> least;
  for (const ControlGroup& group : control_groups("memory", cgroup_file, mounted_at)) {
    const auto left = left_in(group);
    if (left && (!least || left->bytes < least->bytes)) least = left;
  }
  return least;
}

}  // namespace ddp::rendezvous
