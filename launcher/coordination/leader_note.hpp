// SPDX-License-Identifier: BSD-3-Clause
// Where the leader of a job is, in the note of its key in etcd, so that the other nodes find it.
//
//     node 5d1f0e6a9c3b7284         names its ddprun
//     host node0
//     address 10.0.0.1              numeric, one line for each
//     port 40313
//
// Everybody who may write to etcd may write anything there, so a note is checked before a node connects to what it
// says. It is no secret, and proves nothing: nodes prove to each other over the link that they belong to the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace ddp::launcher {

struct LeaderNote {
  std::string node;
  std::string host;  // for people
  std::vector<std::string> addresses;
  std::uint16_t port = 0;
  bool operator==(const LeaderNote&) const = default;
};

inline constexpr std::size_t kMostNoteBytes = 8 << 10;
inline constexpr std::size_t kMostNoteAddresses = 64;

std::string text_of(const LeaderNote& note);
// Returns the note, or why this is none: "line 3 is strange".
std::variant<LeaderNote, std::string> read_leader_note(const std::string& text);

}  // namespace ddp::launcher
