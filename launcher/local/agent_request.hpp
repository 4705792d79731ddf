// SPDX-License-Identifier: BSD-3-Clause
// The JSON of the agent's socket: what a worker or a program asks, as rendezvous/agent_client.hpp has it, and how each
// answer begins.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/wire/json_text.hpp"

namespace ddp::launcher {

struct AgentRequest {
  std::string ask, incarnation, name, sockets;
  int version = 0, stays = 0, round = 0, others = 0;
  std::uint64_t layout = 0;
  std::int64_t bytes = 0;
};

// Returns nothing if the text is not one JSON object whose members have their own types.
std::optional<AgentRequest> read_agent_request(const std::string& text);

// Returns an answer that has the socket's version, to be continued.
rendezvous::JsonObject begin_agent_answer();

}  // namespace ddp::launcher
