// SPDX-License-Identifier: BSD-3-Clause
// Where a process is: what must be equal for two of them to share memory, as far as each can tell by itself, and its
// NUMA node.
#pragma once

#include <optional>
#include <string>

namespace ddp::collectives {

struct OwnPlace {
  std::string boot;     // the machine's id, which changes with each start of the kernel
  std::string network;  // the network namespace, which abstract sockets belong to
  std::string user;
  std::optional<int> numa_node;  // the one that has all CPUs of the thread which makes the group
};

OwnPlace own_place();

// Returns whether processes at these places should share memory. This is a hint only: whether they do shows when they
// try.
bool may_share_memory(const OwnPlace& a, const OwnPlace& b);

// Return the place as one word, and read it back.
std::string to_word(const OwnPlace& place);
OwnPlace place_from(const std::string& word);

// Returns why processes at two places may not share memory, in words; empty if they are on different machines.
std::string difference(const OwnPlace& a, const OwnPlace& b);

}  // namespace ddp::collectives
