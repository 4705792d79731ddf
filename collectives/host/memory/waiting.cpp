// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/memory/waiting.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "rendezvous/base/text_stream.hpp"
#include "rendezvous/machine/control_groups.hpp"

namespace ddp::collectives {
namespace {

using CpuMask = std::array<std::uint64_t, std::tuple_size_v<decltype(Presence::cpus)>>;

CpuMask mask_of(const Presence& presence) {
  CpuMask mask = {};
  const std::uint32_t words = presence.cpu_words.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < words && i < mask.size(); ++i) mask[i] = presence.cpus[i].load(std::memory_order_relaxed);
  return mask;
}

bool meet(const CpuMask& a, const CpuMask& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if ((a[i] & b[i]) != 0) return true;
  }
  return false;
}

std::optional<double> quota_of(const rendezvous::ControlGroup& group) {
  double quota = 0, period = 0;
  if (group.version == 2) {
    rendezvous::FileStream file(group.folder + "/cpu.max");  // "max 100000" without a limit
    if (!(file >> quota >> period)) return std::nullopt;
  } else {
    rendezvous::FileStream quota_file(group.folder + "/cpu.cfs_quota_us"),
        period_file(group.folder + "/cpu.cfs_period_us");
    if (!(quota_file >> quota) || !(period_file >> period)) return std::nullopt;
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

}  // namespace

void publish_cpus(Presence& presence) {
  // A machine with more CPUs than the line has room for refuses a mask of this size: then no CPU is published, and
  // ranks do not spin.
  CpuMask mask = {};
  const int result = sched_getaffinity(0, sizeof mask, reinterpret_cast<cpu_set_t*>(mask.data()));
  if (result != 0) return;
  for (std::size_t i = 0; i < mask.size(); ++i) presence.cpus[i].store(mask[i], std::memory_order_relaxed);
  presence.cpu_words.store(static_cast<std::uint32_t>(mask.size()), std::memory_order_release);
}

std::optional<double> cpu_quota(const std::string& cgroup_file, const std::string& mounted_at) {
  std::optional<double> least;
  for (const rendezvous::ControlGroup& group : rendezvous::control_groups("cpu", cgroup_file, mounted_at)) {
    const auto quota = quota_of(group);
    if (quota && (!least || *quota < *least)) least = quota;
  }
  return least;
}

bool has_own_cpu(const Segment& segment, std::uint32_t rank, std::uint32_t ranks_on_node, std::optional<double> quota) {
  const CpuMask own = mask_of(segment.presence(rank));
  std::uint32_t cpus = 0, sharing = 0;
  for (const std::uint64_t word : own) cpus += static_cast<std::uint32_t>(std::popcount(word));
  for (std::uint32_t r = 0; r < segment.ranks(); ++r) {
    if (meet(own, mask_of(segment.presence(r)))) ++sharing;
  }
  // Ranks of other groups are counted where this rank may use every CPU, as they then may.
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  if (static_cast<long>(cpus) >= online) sharing = std::max(sharing, ranks_on_node);
  if (quota && *quota < static_cast<double>(std::max(segment.ranks(), ranks_on_node))) return false;
  return cpus >= sharing && cpus > 0;
}

void publish_place(Presence& presence) {
  const auto cpu = static_cast<std::uint32_t>(sched_getcpu() + 1);  // 0 if it is not known
  if (presence.last_cpu.load(std::memory_order_relaxed) != cpu) presence.last_cpu.store(cpu, std::memory_order_relaxed);
}

bool leave_cpu_of(const Segment& segment, std::uint32_t rank, std::uint32_t waited_for) {
  publish_place(segment.presence(rank));
  const std::uint32_t here = segment.presence(rank).last_cpu.load(std::memory_order_relaxed);
  if (here == 0 || segment.presence(waited_for).last_cpu.load(std::memory_order_relaxed) != here) return false;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  cpu_set_t free = allowed;
  for (std::uint32_t r = 0; r < segment.ranks(); ++r) {
    const std::uint32_t taken = segment.presence(r).last_cpu.load(std::memory_order_relaxed);
    if (taken != 0) CPU_CLR(taken - 1, &free);
  }
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &free)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) return false;
    sched_setaffinity(0, sizeof allowed, &allowed);
    publish_place(segment.presence(rank));
    return true;
  }
  return false;
}

}  // namespace ddp::collectives
