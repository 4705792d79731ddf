// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/coordinator.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/pipe.hpp"
#include "rendezvous/base/thread.hpp"
#include "rendezvous/link/printable.hpp"
#include "rendezvous/net/connection_owner.hpp"
#include "rendezvous/net/listen.hpp"
#include "rendezvous/net/peer_user.hpp"
#include "rendezvous/net/silence.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::rendezvous {

Coordinator::Coordinator(CoordinatorConfig config, Options options)
    : config_(std::move(config)),
      options_(std::move(options)),
      strangers_log_(options_.log),
      core_(config_),
      driver_(io_, core_,
              [this](const CoordinatorAction& action) {
                gate_.take(action);
                carry_out_due();
              }),
      look_timer_(io_) {
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
  }
  if (options_.stores) {
    stores_ = options_.stores(io_, {.on_agent_link =
                                        [this](Descriptor socket, std::string first_bytes) {
                                          acceptor_->accept(std::move(socket), std::move(first_bytes));
                                        },
                                    .on_lost =
                                        [this](int clients, const std::string& why) {
                                          if (!has_begun_) early_loss_ = {clients, why};
                                          if (has_begun_) driver_.handle(StoreLost{clients, why});
                                        },
                                    .ask_owner = [this](const std::string& connection) { ask_owner(connection); }});
  } else {
    auto own = std::make_unique<LocalStores>(listen_on(options_.addresses, options_.port), store_options());
    own_store_ = own.get();
    stores_ = std::move(own);
  }
  begin();
  thread_ = start_thread("ddprun-coord", [this] { io_.run(); });
  if (!acceptor_) return;
  handshake_thread_ = start_thread("ddprun-joins", [this] {
    const auto work = asio::make_work_guard(handshakes_);
    handshakes_.run();
  });
}

// ---- The journal ----

void Coordinator::begin() {
  if (!options_.journal) {
    has_begun_ = true;
    if (options_.begins_with) {
      asio::post(io_, [this] { driver_.handle(Recovered{options_.begins_with, std::chrono::milliseconds(0)}); });
    }
    return;
  }
  journal_ = options_.journal(io_);
  journal_->claim({.on_claimed = [this](const JournalClaim& claim) { on_claimed(claim); },
                   .on_kept =
                       [this](std::uint64_t number) {
                         gate_.kept(number);
                         carry_out_due();
                       },
                   .on_lost = [this](const std::string& why) { lose(why); },
                   .on_may_tell = [this] { carry_out_due(); }});
}

void Coordinator::on_claimed(const JournalClaim& claim) {
  config_.epoch = claim.epoch;
  config_.epoch_is_number = claim.epoch_is_number;
  if (options_.own_epoch) config_.own_epoch = options_.own_epoch();
  core_ = CoordinatorCore(config_);
  Recovered recovered{.age = claim.age};
  if (!claim.content.empty()) {
    const auto record = decode_record(claim.content);
    if (const auto* why = std::get_if<std::string>(&record)) {
      return lose("the coordinator's journal has a record that cannot be read: " + *why);
    }
    recovered.record = std::get<JobRecord>(record);
  }
  if (recovered.record || claim.epoch_is_number) driver_.handle(recovered);
  has_begun_ = true;
  if (options_.on_claimed) options_.on_claimed();
  if (early_loss_) driver_.handle(*std::exchange(early_loss_, std::nullopt));
  for (AcceptedLink& early : std::exchange(early_, {})) link(std::move(early));
}

void Coordinator::stand_by() {
  early_.clear();
  early_loss_.reset();
}

void Coordinator::lose(const std::string& why) {
  is_lost_ = true;
  for (auto& [id, link] : links_) link->stop();
  links_.clear();
  if (options_.on_lost) options_.on_lost(why);
}

// Tells nothing that depends on a record before that is kept, and nothing while the journal may be another's.
void Coordinator::carry_out_due() {
  while (!is_lost_) {
    const auto action = gate_.next(may_tell());
    if (!action) return;
    std::visit([this](const auto& a) { carry_out(a); }, *action);
  }
}

void Coordinator::carry_out(const Record& action) {
  if (journal_) journal_->write(action.number, action.content);
}

void Coordinator::carry_out(const JobDone& action) {
  const auto done = [this] {
    if (options_.on_done) options_.on_done();
  };
  if (!journal_ || !action.may_be_forgotten) return done();
  journal_->release([done](bool) { done(); });
}

void Coordinator::carry_out(const StepDown&) {
  if (options_.on_done) options_.on_done();
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
  SocketPair pair = make_socket_pair(SOCK_STREAM, "cannot make a socketpair for the agent link");
  link_own(std::move(pair.left));
  return std::move(pair.right);
}

void Coordinator::link_own(Descriptor end) {
  asio::post(io_, [this, own = std::move(end)]() mutable {
    link({.socket = std::move(own), .first_bytes = "", .cipher = {}, .address = "", .arrived_at = ""});
  });
}

LocalStores::Options Coordinator::store_options() {
  LocalStores::Options options = {.addresses = options_.addresses,
                                  .has_several_nodes = config_.job.max_nodes > 1,
                                  .is_elastic = config_.job.min_nodes < config_.job.max_nodes,
                                  .hosts_workers_store = options_.hosts_workers_store};
  options.server = server_options(options_.any_user, options_.log);
  if (acceptor_) {
    options.server.on_agent_link = [this](Descriptor socket, std::string first_bytes) {
      acceptor_->accept(std::move(socket), std::move(first_bytes));
    };
    options.server.ask_owner = [this](const std::string& connection) {
      asio::post(io_, [this, connection] { ask_owner(connection); });
    };
  }
  return options;
}

void Coordinator::link(AcceptedLink accepted) {
  if (is_lost_) return;
  if (!has_begun_) {
    if (early_.size() >= config_.max_unheard_links) early_.erase(early_.begin());
    early_.push_back(std::move(accepted));
    return;
  }
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
  callbacks.on_clock = [this, id](ClockReading question) { tell_clock(id, question); };
  const auto link = std::make_shared<AgentLink>(std::move(socket), std::move(callbacks), std::move(accepted.cipher));
  links_[id] = link;
  driver_.handle(AgentLinked{id, accepted.address, ends ? share_of(ends->peer.address) : ""});
  link->start(accepted.first_bytes);
}

void Coordinator::tell_clock(AgentId agent, const ClockReading& question) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const auto link = links_.find(agent);
  if (link == links_.end() || core_.roster().on_link(agent) == nullptr) return;  // no node has reported on this link
  link->second->send(ClockReading{question.agent_ns, std::chrono::nanoseconds(now).count()});
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
  if (answer.number == kOwnerNumber) return on_owner_answer(from, answer.text);
  if (answer.number != kVolunteered) return send(looks_.answer(from, std::move(answer)));
  const Node* const node = core_.roster().on_link(from);
  const Node* const own = core_.roster().find(core_.roster().own());
  if (node == nullptr || own == nullptr || node == own || node->seat < 0) return;
  answer.node = node->state.incarnation;
  send({{own->link, std::move(answer)}});
}

// ---- Whose a worker's connection is ----

namespace {

bool has_address(const Node& node, const std::string& address) {
  const auto& own = node.state.addresses;
  return std::find(own.begin(), own.end(), address) != own.end();
}

}  // namespace

// The store asks again until it has an answer, so a node whose link is down is asked later. Where nobody knows, as
// behind an address that stands for several machines, the question itself is the answer.
void Coordinator::ask_owner(const std::string& connection) {
  const auto asked = read_owner_answer(connection);
  if (!asked) return;
  const auto nodes_where = [this](const auto& is_meant) {
    std::vector<const Node*> found;
    for (const auto& [incarnation, node] : core_.roster().nodes()) {
      if (is_meant(node)) found.push_back(&node);
    }
    return found;
  };
  auto there = nodes_where([&asked](const Node& node) { return node.address == asked->address; });  // its link comes so
  if (there.empty()) there = nodes_where([&asked](const Node& node) { return has_address(node, asked->address); });
  const bool can_tell = std::all_of(there.begin(), there.end(), [&asked](const Node* node) {
    return node->state.can_look && has_address(*node, asked->address);
  });
  if (there.empty() || !can_tell) return stores_->take_owner(connection);
  for (const Node* const node : there) {
    const auto link = links_.find(node->link);
    if (link != links_.end()) link->second->send(LookRequest{kOwnerNumber, kOwnerQuestion, connection});
  }
}

void Coordinator::on_owner_answer(AgentId from, const std::string& answer) {
  const Node* const node = core_.roster().on_link(from);
  const auto read = read_owner_answer(answer);
  if (node == nullptr || !read || printable_line(answer) != answer) return;
  if (has_address(*node, read->address)) stores_->take_owner(answer);
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
    stores_->open(action.round, action.addresses, [this](int round, std::uint16_t port, const std::string& why_not) {
      driver_.handle(StoreOpened{round, options_.master_addr, port, why_not});
    });
  });
}

void Coordinator::carry_out(const PublishFailure& action) {
  std::string ranks;
  for (const int rank : action.ranks) ranks += (ranks.empty() ? "" : ",") + std::to_string(rank);
  stores_->set(std::string("/") + contract::kFailedRanksKey, ranks);
  stores_->set(std::string("/") + contract::kFailureKey, action.text);
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
