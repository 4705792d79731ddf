// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/coordinator.hpp"

#include <sys/socket.h>

#include <cstring>
#include <utility>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/thread.hpp"
#include "rendezvous/net/listen.hpp"
#include "rendezvous/net/peer_user.hpp"
#include "rendezvous/net/silence.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::rendezvous {

namespace {

// Returns a port that is free on all addresses of this machine. Another process may take it before rank 0 does.
std::uint16_t free_port() { return listen_on({"0.0.0.0", "::"}, 0).port; }

}  // namespace

Coordinator::Coordinator(CoordinatorConfig config, Options options)
    : config_(std::move(config)),
      options_(std::move(options)),
      strangers_log_(options_.log),
      core_(config_),
      driver_(io_, core_,
              [this](const CoordinatorAction& action) { std::visit([this](const auto& a) { carry_out(a); }, action); }),
      look_timer_(io_) {
  StoreServer::Options front = store_options();
  if (config_.job.max_nodes > 1) {
    acceptor_ = std::make_unique<LinkAcceptor>(
        handshakes_,
        LinkAcceptor::Options{.membership = options_.membership,
                              .job = options_.job,
                              .log = options_.log,
                              .on_refused =
                                  [this](const std::string& address, const std::string& why) {
                                    carry_out(RecordNode{RecordNode::What::Refused, "", address, why});
                                  }},
        [this](AcceptedLink accepted) {
          asio::post(io_, [this, made = std::move(accepted)]() mutable { link(std::move(made)); });
        });
    front.on_agent_link = [this](Descriptor socket, std::string first_bytes) {
      acceptor_->accept(std::move(socket), std::move(first_bytes));
    };
  }
  front_ = std::make_unique<StoreServer>(options_.addresses, options_.port, std::move(front));
  if (config_.job.max_nodes > 1) front_->admit_only({});  // no worker runs yet
  thread_ = start_thread("ddprun-coord", [this] { io_.run(); });
  if (!acceptor_) return;
  handshake_thread_ = start_thread("ddprun-joins", [this] {
    const auto work = asio::make_work_guard(handshakes_);
    handshakes_.run();
  });
}

Coordinator::~Coordinator() {
  asio::post(io_, [this] {
    for (auto& [id, link] : links_) link->stop();
    io_.stop();
  });
  handshakes_.stop();
  if (handshake_thread_.joinable()) handshake_thread_.join();
  thread_.join();  // the stores end after it, then what they call
}

Descriptor Coordinator::connect_agent() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Error(ErrorCode::System, std::string("cannot make a socketpair for the agent link: ") + strerror(errno));
  }
  asio::post(io_, [this, end = Descriptor(ends[0])]() mutable {
    link({.socket = std::move(end), .first_bytes = "", .cipher = {}, .address = "", .arrived_at = ""});
  });
  return Descriptor(ends[1]);
}

StoreServer::Options Coordinator::store_options() const {
  StoreServer::Options options;
  options.any_user = options_.any_user;
  options.other_users_hint = "if it is a worker or a node of this job, start ddprun with --any-user";
  options.log = options_.log;
  return options;
}

void Coordinator::link(AcceptedLink accepted) {
  const auto ends = ends_of(accepted.socket.get());  // none for the link of this process's own agent
  LinkSocket socket = link_socket(io_, std::move(accepted.socket));
  if (!socket.is_open()) return;  // the agent will try again
  const AgentId id = next_agent_++;
  AgentLink::Callbacks callbacks;
  callbacks.on_message = [this, id, address = accepted.address, arrived_at = accepted.arrived_at](AgentState state) {
    driver_.handle(AgentReported{id, std::move(state), address, arrived_at});
  };
  callbacks.on_heartbeat = [this, id] { driver_.handle(AgentBeat{id}); };
  callbacks.on_closed = [this, id](const std::string& why) {
    links_.erase(id);
    driver_.handle(AgentGone{id, why});
    send(looks_.gone(id));
  };
  callbacks.on_look_request = [this, id](const LookRequest& request) { begin_look(id, request); };
  callbacks.on_look_answer = [this, id](LookAnswer answer) { on_look_answer(id, std::move(answer)); };
  const auto link = std::make_shared<AgentLink>(std::move(socket), std::move(callbacks), std::move(accepted.cipher));
  links_[id] = link;
  driver_.handle(AgentLinked{id, accepted.address, ends ? share_of(ends->peer.address) : ""});
  link->start(accepted.first_bytes);
}

void Coordinator::carry_out(const SendDirective& action) {
  const auto link = links_.find(action.agent);
  if (link != links_.end()) link->second->send(action.directive);
}

void Coordinator::carry_out(const AnswerBeat& action) {
  const auto link = links_.find(action.agent);
  if (link != links_.end()) link->second->send(Heartbeat{});
}

void Coordinator::carry_out(const CloseLink& action) {
  const auto link = links_.find(action.agent);
  if (link == links_.end()) return;
  link->second->stop();
  links_.erase(link);
  asio::post(io_, [this, agent = action.agent] { send(looks_.gone(agent)); });
}

// ---- Looks ----

void Coordinator::begin_look(AgentId asker, const LookRequest& request) {
  if (core_.roster().on_link(asker) == nullptr) return;  // no node has reported on this link
  Looks::Asked asked;
  for (const auto& [incarnation, node] : core_.roster().nodes()) {
    if (!node.cut && node.state.can_look && links_.contains(node.link)) asked[node.link] = incarnation;
  }
  send(looks_.begin(std::chrono::steady_clock::now(), asker, request, core_.facts(), asked));
}

void Coordinator::on_look_answer(AgentId from, LookAnswer answer) {
  if (answer.number != kVolunteered) return send(looks_.answer(from, std::move(answer)));
  const Node* const node = core_.roster().on_link(from);
  const Node* const own = core_.roster().find(config_.own_incarnation);
  if (node == nullptr || own == nullptr || node == own || node->seat < 0) return;
  answer.node = node->state.incarnation;
  send({{own->link, std::move(answer)}});
}

// What somebody looks at never cuts off a link: an answer that would wait behind much else is left out.
void Coordinator::send(const std::vector<Looks::Send>& sends) {
  for (const Looks::Send& each : sends) {
    const auto found = links_.find(each.agent);
    if (found == links_.end()) continue;
    const auto link = found->second;
    const bool is_answer = std::holds_alternative<LookAnswer>(each.message);
    if (is_answer && link->queued_bytes() > kMaxFrameBytes / 2) continue;
    std::visit([&link](const auto& message) { link->send(message); }, each.message);
  }
  set_look_timer();
}

void Coordinator::set_look_timer() {
  const auto wake_at = looks_.wake_at();
  if (!wake_at) {
    look_timer_.cancel();
    return;
  }
  look_timer_.expires_at(*wake_at);
  look_timer_.async_wait([this](const auto& error) {
    if (!error) send(looks_.expire(std::chrono::steady_clock::now()));
  });
}

void Coordinator::carry_out(const OpenStore& action) {
  // Posted, since the answer is an event, and the core is in the middle of one.
  asio::post(io_, [this, action] {
    try {
      open_store(action);
      const std::uint16_t port = options_.hosts_workers_store ? store().port() : free_port();
      driver_.handle(StoreOpened{action.round, options_.master_addr, port});
    } catch (const Error& error) {
      driver_.handle(StoreFailed{action.round, error.what()});
    }
  });
}

// The first round uses the store as it was made; each later round gets an empty one.
void Coordinator::open_store(const OpenStore& action) {
  std::vector<std::string> members = action.addresses;
  members.insert(members.end(), {"127.0.0.1", "::1"});
  const bool has_own_port = config_.job.min_nodes < config_.job.max_nodes && action.round > 1;
  if (has_own_port) {
    if (!later_) {
      front_->admit_only({});
      front_->reset();
    }
    later_ = std::make_unique<StoreServer>(options_.addresses, 0, store_options());
  }
  if (config_.job.max_nodes > 1) store().admit_only(members);
  if (action.round > 1 && !has_own_port) front_->reset();
}

void Coordinator::carry_out(const PublishFailure& action) {
  std::string ranks;
  for (const int rank : action.ranks) ranks += (ranks.empty() ? "" : ",") + std::to_string(rank);
  store().set(std::string("/") + contract::kFailedRanksKey, ranks);
  store().set(std::string("/") + contract::kFailureKey, action.text);
}

void Coordinator::carry_out(const CoordinatorLogLine& action) {
  if (action.is_about_stranger) {
    strangers_log_.write(action.text);
  } else if (options_.log) {
    options_.log(action.text);
  }
}

void Coordinator::carry_out(const RecordNode& action) {
  if (options_.record) options_.record(action);
}

}  // namespace ddp::rendezvous
