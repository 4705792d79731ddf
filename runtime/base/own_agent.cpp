// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/base/own_agent.hpp"

#include <cstdlib>

#include "rendezvous/worker_contract.hpp"

namespace ddp::runtime {

std::optional<rendezvous::AgentReply> ask_own_agent(rendezvous::AgentRequest request) {
  const char* socket = std::getenv(rendezvous::contract::kAgentSocket);
  const char* incarnation = std::getenv(rendezvous::contract::kIncarnation);
  if (socket == nullptr || incarnation == nullptr) return std::nullopt;
  request.incarnation = incarnation;
  return rendezvous::ask_agent(socket, request);
}

}  // namespace ddp::runtime
