// SPDX-License-Identifier: BSD-3-Clause
// Asks the agent that has started this worker, over the socket of rendezvous/agent_client.hpp.
#pragma once

#include <optional>

#include "rendezvous/agent_client.hpp"

namespace ddp::runtime {

// Returns the answer to the request, which gets this worker's incarnation; nothing if no agent with a socket has
// started this process. Throws rendezvous::Error.
std::optional<rendezvous::AgentReply> ask_own_agent(rendezvous::AgentRequest request);

}  // namespace ddp::runtime
