// SPDX-License-Identifier: BSD-3-Clause
// Accepts what the other end of a link says, or tells why not: it may be broken, or lie. FrameDecoder (codec.hpp) asks
// for every message, so the cores see accepted ones only. What depends on earlier messages (a node's rank may not
// change, a round must have begun) is checked by the cores.
//
// A message is refused if a number is out of its range, a count or an identifier too large, an address none, or if its
// parts contradict each other: a failure with exit code 0, an end with code 0 after a failure. Then the link is closed
// with the reason. Words for people are made printable and cut instead: they decide nothing.
// docs/internals/agent_link.md has the table.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "rendezvous/link/messages.hpp"

namespace ddp::rendezvous {

inline constexpr int kMaxSlots = 65536;                     // workers of one node
inline constexpr std::size_t kMaxQuestionBytes = 64 << 10;  // what a question has to say beside its name
inline constexpr std::size_t kMaxLookBytes = 2 << 20;       // what one node says to somebody who looks
inline constexpr int kMaxLookDepth = 24;                    // its JSON; what quotes it may have kMaxJsonDepth

// Return what is wrong with a message ("exit_code is 256"); nothing: it is accepted, and its words are printable. A
// node_rank or a number of slots that no node can have is accepted: the coordinator refuses it with a sentence for the
// node's user.
std::optional<std::string> accept(AgentState& state);
std::optional<std::string> accept(Directive& directive);
std::optional<std::string> accept(LookRequest& request);
std::optional<std::string> accept(LookAnswer& answer);
std::optional<std::string> accept(LookEnd& end);
std::optional<std::string> accept(ClockReading& reading);

}  // namespace ddp::rendezvous
