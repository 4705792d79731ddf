// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/base/own_agent.hpp"

#include <cstdlib>

#include "rendezvous/agent_client.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::runtime {

std::optional<rendezvous::DescriptorMessage> ask_own_agent(const std::string& ask, const std::string& members) {
  const char* socket = std::getenv(rendezvous::contract::kAgentSocket);
  const char* incarnation = std::getenv(rendezvous::contract::kIncarnation);
  if (socket == nullptr || incarnation == nullptr) return std::nullopt;
  const std::string request = "{\"version\":" + std::to_string(rendezvous::kAgentSocketVersion) + ",\"ask\":\"" + ask +
                              "\",\"incarnation\":\"" + incarnation + "\"" + members + "}";
  return rendezvous::ask_agent(socket, request);
}

}  // namespace ddp::runtime
