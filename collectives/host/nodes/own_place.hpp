// SPDX-License-Identifier: BSD-3-Clause
// What must be equal for two processes to share memory, as far as each can tell by itself.
#pragma once

#include <string>

namespace ddp::collectives {

// Where a process is. Equal places are a hint only: whether processes share memory shows when they try.
struct OwnPlace {
  std::string boot;     // the machine's id, which changes with each start of the kernel
  std::string network;  // the network namespace, which abstract sockets belong to
  std::string user;

  bool operator==(const OwnPlace&) const = default;
};

OwnPlace own_place();

// Return the place as one word, and read it back.
std::string to_word(const OwnPlace& place);
OwnPlace place_from(const std::string& word);

// Returns why processes at two places that differ share no memory, in words; empty if they are on different machines.
std::string difference(const OwnPlace& a, const OwnPlace& b);

}  // namespace ddp::collectives
