// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/agent_request.hpp"

#include "rendezvous/agent_client.hpp"
#include "rendezvous/wire/declared_json.hpp"

namespace ddp::launcher {

template <typename Json>
void members(Json& json, AgentRequest& request) {
  json("version", request.version)("ask", request.ask)("incarnation", request.incarnation)("name", request.name);
  json("layout", request.layout)("bytes", request.bytes)("stays", request.stays)("round", request.round);
  json("others", request.others)("sockets", request.sockets);
}

std::optional<AgentRequest> read_agent_request(const std::string& text) {
  return rendezvous::read_json<AgentRequest>(text);
}

rendezvous::JsonObject begin_agent_answer() {
  return rendezvous::JsonObject().number("version", rendezvous::kAgentSocketVersion);
}

}  // namespace ddp::launcher
