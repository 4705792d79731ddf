// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator.hpp"

#include <sys/socket.h>

#include <csignal>
#include <cstring>

#include "rendezvous/error.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::rendezvous {

Coordinator::Coordinator(CoordinatorConfig config, const std::vector<std::string>& store_addresses,
                         std::uint16_t store_port, std::string master_addr, StoreServer::Options store_options)
    : core_(std::move(config)),
      store_(store_addresses, store_port, std::move(store_options)),
      master_addr_(std::move(master_addr)),
      thread_([this] {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, nullptr);  // the process's signals belong to its main thread
        io_.run();
      }) {}

Coordinator::~Coordinator() {
  asio::post(io_, [this] {
    for (auto& [id, link] : links_) link->stop();
    work_.reset();
  });
  thread_.join();
}

int Coordinator::connect_agent() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Error(ErrorCode::System, std::string("cannot make a socketpair for the agent link: ") + strerror(errno));
  }
  asio::post(io_, [this, end = ends[0]] {
    const AgentId id = next_agent_++;
    AgentLink::Socket socket(io_, asio::generic::stream_protocol(AF_UNIX, 0), end);
    auto link = std::make_shared<AgentLink>(std::move(socket),
                                            AgentLink::Callbacks{.on_message =
                                                                     [this, id](AgentState state) {
                                                                       handle(AgentReported{id, std::move(state)});
                                                                     },
                                                                 .on_heartbeat = {},
                                                                 .on_closed =
                                                                     [this, id](const std::string& why) {
                                                                       links_.erase(id);
                                                                       handle(AgentGone{id, why});
                                                                     }});
    links_[id] = link;
    link->start();
  });
  return ends[1];
}

void Coordinator::handle(const CoordinatorEvent& event) {
  std::vector<CoordinatorAction> actions;
  core_.step(std::chrono::steady_clock::now(), event, actions);
  for (const CoordinatorAction& action : actions) {
    std::visit([this](const auto& a) { carry_out(a); }, action);
  }
}

void Coordinator::carry_out(const SendDirective& action) {
  const auto link = links_.find(action.agent);
  if (link != links_.end()) link->second->send(action.directive);
}

void Coordinator::carry_out(const SendBeat&) {}
void Coordinator::carry_out(const CloseLink&) {}
void Coordinator::carry_out(const CoordinatorSays&) {}

void Coordinator::carry_out(const OpenStore& action) {
  // The first round finds the store as it was made; later ones get an empty one on the same port, which is safe since
  // no process of the round before is left.
  if (action.round > 1) store_.reset();
  asio::post(io_, [this, round = action.round] { handle(StoreOpened{round, master_addr_, store_.port()}); });
}

void Coordinator::carry_out(const PublishFailure& action) {
  store_.set(std::string("/") + contract::kFailureKey, action.text);
}

}  // namespace ddp::rendezvous
