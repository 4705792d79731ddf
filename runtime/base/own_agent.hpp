// SPDX-License-Identifier: BSD-3-Clause
// Asks the agent that has started this worker, over the socket of rendezvous/agent_client.hpp.
#pragma once

#include <optional>
#include <string>

#include "rendezvous/base/descriptor_message.hpp"

namespace ddp::runtime {

// Returns the answer; nothing if no agent with a socket has started this process. `members` are those of the request
// besides version, ask and incarnation: `,"bytes":4096`. Throws rendezvous::Error.
std::optional<rendezvous::DescriptorMessage> ask_own_agent(const std::string& ask, const std::string& members = "");

}  // namespace ddp::runtime
