// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/stores.hpp"

#include <utility>

#include "rendezvous/base/error.hpp"

namespace ddp::rendezvous {

namespace {

// Returns a port that is free on all addresses of this machine. Another process may take it before rank 0 does.
std::uint16_t free_port() { return listen_on({"0.0.0.0", "::"}, 0).port; }

}  // namespace

StoreServer::Options server_options(bool any_user, std::function<void(const std::string& line)> log) {
  StoreServer::Options options;
  options.any_user = any_user;
  options.other_users_hint = "if it is a worker or a node of this job, start ddprun with --any-user";
  options.log = std::move(log);
  return options;
}

LocalStores::LocalStores(Listeners front, Options options)
    : options_(std::move(options)), front_(std::make_unique<StoreServer>(std::move(front), options_.server)) {
  if (options_.has_several_nodes) front_->admit_only({});  // no worker runs yet
}

void LocalStores::open(int round, const std::vector<std::string>& members, Opened opened) {
  try {
    reopen(round, members);
    opened(round, options_.hosts_workers_store ? newest().port() : free_port(), "");
  } catch (const Error& error) {
    opened(round, 0, error.what());
  }
}

// The first round uses the store as it was made; each later round gets an empty one.
void LocalStores::reopen(int round, const std::vector<std::string>& members) {
  std::vector<std::string> admitted = members;
  admitted.insert(admitted.end(), {"127.0.0.1", "::1"});
  const bool has_own_port = options_.is_elastic && round > 1;
  if (has_own_port) {
    if (!later_) {
      front_->admit_only({});
      front_->reset();
    }
    StoreServer::Options server = options_.server;
    server.on_agent_link = {};
    later_ = std::make_unique<StoreServer>(options_.addresses, 0, std::move(server));
  }
  if (options_.has_several_nodes) newest().admit_only(admitted);
  if (round > 1 && !has_own_port) front_->reset();
}

}  // namespace ddp::rendezvous
