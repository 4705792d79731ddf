// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/coordination/candidate.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "launcher/guardian/supervisor.hpp"
#include "rendezvous/base/random_id.hpp"
#include "rendezvous/etcd/tls/tls_session.hpp"

namespace ddp::launcher {

namespace asio = rendezvous::asio;

namespace {

using std::chrono::milliseconds;

// Nodes of the round try in the order of their ranks, since one of them goes on with less: its workers are there. A
// node without a rank waits for all of them.
constexpr milliseconds kBetweenRanks{20}, kLastRank{300}, kNoRank{400};

}  // namespace

rendezvous::EtcdSettings etcd_settings(const EtcdConfig& config) {
  rendezvous::EtcdSettings settings;
  settings.endpoints = rendezvous::parse_etcd_endpoints(config.endpoints);
  settings.user = config.user;
  settings.password_file = config.password_file;
  if (config.uses_tls) settings.tls = rendezvous::TlsFiles{config.authorities, config.certificate, config.key};
  return settings;
}

Candidate::Candidate(const LaunchConfig& config, Candidacy& candidacy, LeaderNote own, Callbacks callbacks)
    : config_(config), candidacy_(candidacy), own_(std::move(own)), callbacks_(std::move(callbacks)) {}

std::unique_ptr<rendezvous::EtcdJournal> Candidate::make_journal(asio::io_context& io, Wants wants) {
  rendezvous::LeaseConfig lease;
  lease.job = config_.job.id;
  lease.self = rendezvous::random_id();
  lease.note = text_of(own_);
  lease.is_candidate = wants == Wants::ToLead;
  lease.is_in_job = !candidacy_.obeyed().empty();
  if (lease.is_candidate) lease.inherited = candidacy_.lease();
  rendezvous::EtcdJournal::Watchers watchers;
  watchers.head_start = [this] {
    const int rank = candidacy_.rank();
    return rank < 0 ? kNoRank : std::min(kBetweenRanks * rank, kLastRank);
  };
  watchers.on_other = [this](std::int64_t epoch, const std::string& note) { on_other(epoch, note); };
  watchers.on_doubt = [this](const std::string& why) {
    callbacks_.warning("the coordinator waits until etcd confirms that it may go on: " + why);
  };
  watchers.on_sure = [this] { callbacks_.warning("etcd has confirmed the coordinator, which goes on"); };
  watchers.on_trouble = callbacks_.trouble;
  // Its keeper may be late to end it. If this process led the job then, the next one with its id would have to wait.
  watchers.on_ask = [this] {
    if (candidacy_.has_left() && !candidacy_.lease()) _exit(Supervisor::kDone);
  };
  auto journal = std::make_unique<rendezvous::EtcdJournal>(io, etcd_settings(*config_.etcd), std::move(lease),
                                                           std::move(watchers));
  io_ = &io;
  journal_ = journal.get();
  return journal;
}

void Candidate::claimed() {
  const Candidacy::Inheritance lease = journal_->inheritance();
  candidacy_.lead(lease);
  now_led_by({lease.epoch, own_});
}

void Candidate::say_again() const {
  asio::post(*io_, [this] {
    if (leader_) callbacks_.leader(*leader_);
  });
}

void Candidate::on_other(std::int64_t epoch, const std::string& text) {
  candidacy_.release();
  const auto note = read_leader_note(text);
  if (const auto* why = std::get_if<std::string>(&note)) {
    return callbacks_.warning("the key in etcd that says which node coordinates is no such note: " + *why);
  }
  const auto& leader = std::get<LeaderNote>(note);
  callbacks_.stand_by();
  // The key of an earlier process of this node goes with its lease.
  if (leader.node != own_.node) now_led_by({epoch, leader});
}

void Candidate::now_led_by(Leader leader) {
  leader_ = std::move(leader);
  callbacks_.leader(*leader_);
}

}  // namespace ddp::launcher
