// SPDX-License-Identifier: BSD-3-Clause
// Ranks as processes of their own, forked from the test, which meet through a store and use the
// backend "ddp" by its table, as libddp does.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "collectives/host/backend.hpp"
#include "collectives/host/nodes/own_place.hpp"
#include "ddp/backend.h"

namespace ddp::collectives::test {

inline constexpr std::int64_t kTimeoutMs = 120'000;  // for one call; only a hang takes that long

// A place on a simulated node: ranks at places with different numbers share no memory, and use TCP.
OwnPlace place_on_node(int node);
// A place on a simulated NUMA node of this machine.
OwnPlace place_on_numa_node(int node);

// Simulated nodes, or NUMA nodes, with the number of each rank's.
struct World {
  std::vector<int> node_of;
  OwnPlace (*place_on)(int node) = place_on_node;

  std::uint32_t size() const { return static_cast<std::uint32_t>(node_of.size()); }
  OwnPlace place_of(std::size_t rank) const { return place_on(node_of[rank]); }
};

// Joins the group `name` as a rank of `size` at `place`. Throws std::runtime_error with the backend's text if that
// fails. Calls `once_connected` in between, if it is set, when the store is reached.
ddp_backend_group* join_group(std::uint16_t port, const std::string& name, int rank, int size,
                              std::int64_t timeout_ms = kTimeoutMs, const std::function<void()>& once_connected = {},
                              const std::optional<OwnPlace>& place = {});
// Joins as a rank on a simulated node.
inline ddp_backend_group* join_on_node(int node, std::uint16_t port, const std::string& name, int rank, int size,
                                       std::int64_t timeout_ms = kTimeoutMs) {
  return join_group(port, name, rank, size, timeout_ms, {}, place_on_node(node));
}

// Forks a process that runs `body` and ends with what it returns; 99 if it throws, which it says on stderr. The process
// is killed if the test ends first.
pid_t fork_rank(const std::function<int()>& body);
// Returns the exit code, or -1 - the signal.
int reap(pid_t process);
// Returns once the first thread of this process sleeps.
void wait_until_asleep(pid_t process);

// A store in a process of its own: a process with threads should not fork others that start threads, and
// ThreadSanitizer ends them.
class StoreProcess {
 public:
  StoreProcess();
  ~StoreProcess();
  StoreProcess(const StoreProcess&) = delete;
  StoreProcess& operator=(const StoreProcess&) = delete;
  std::uint16_t port() const { return port_; }

 private:
  pid_t process_ = -1;
  std::uint16_t port_ = 0;
};

// Returns microseconds since boot, the same clock in all processes.
double now_us();
// Returns memory that the kernel has to free when this process ends.
std::vector<char> memory_of(int mib);

// What a rank reports through a pipe about a call that failed.
struct Report {
  int status;
  double at_us;
  char text[200];
};
// Ends the rank's part in the group and reports. Throws std::runtime_error if nobody reads.
void report(int pipe, ddp_backend_group* group, ddp_backend_status status, const char* text);

template <typename T>
T read_from(int pipe) {
  T value = {};
  if (read(pipe, &value, sizeof value) != sizeof value) throw std::runtime_error("nothing came through the pipe");
  return value;
}

// Returns how many descriptors this process has open.
std::size_t open_descriptors();
// Returns how many pages of memory the segments of this process's groups have.
std::int64_t pages_of_segments();

}  // namespace ddp::collectives::test
