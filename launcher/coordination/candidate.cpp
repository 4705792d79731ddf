// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/coordination/candidate.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "launcher/guardian/siblings.hpp"
#include "rendezvous/base/random_id.hpp"
#include "rendezvous/etcd/tls/tls_session.hpp"

namespace ddp::launcher {

namespace asio = rendezvous::asio;

namespace {

using std::chrono::milliseconds;

// Nodes of the round try in the order of their ranks, since one of them goes on with less: its workers are there. A
// node without a place waits for all of them.
constexpr milliseconds kBetweenPlaces{20}, kLastPlace{300}, kNoPlace{400};

}  // namespace

rendezvous::EtcdSettings etcd_settings(const EtcdConfig& config) {
  rendezvous::EtcdSettings settings;
  settings.endpoints = rendezvous::parse_etcd_endpoints(config.endpoints);
  settings.user = config.user;
  settings.password_file = config.password_file;
  if (config.uses_tls) settings.tls = rendezvous::TlsFiles{config.authorities, config.certificate, config.key};
  return settings;
}

Candidate::Candidate(const LaunchConfig& config, Standing& standing, HolderNote own, Callbacks callbacks)
    : config_(config), standing_(standing), own_(std::move(own)), callbacks_(std::move(callbacks)) {}

std::unique_ptr<rendezvous::EtcdJournal> Candidate::make_journal(asio::io_context& io, Wants wants) {
  rendezvous::LeaseConfig lease;
  lease.job = config_.job.id;
  lease.self = rendezvous::random_id();
  lease.note = text_of(own_);
  lease.head_start = kNoPlace;
  lease.is_candidate = wants == Wants::ToHold;
  lease.is_in_job = !standing_.obeyed().empty();
  if (lease.is_candidate) lease.inherited = standing_.held();
  rendezvous::EtcdJournal::Watchers watchers;
  watchers.on_other = [this](std::int64_t epoch, const std::string& note) { on_other(epoch, note); };
  watchers.on_doubt = [this](const std::string& why) {
    callbacks_.warning("the coordinator waits until etcd confirms that it may go on: " + why);
  };
  watchers.on_sure = [this] { callbacks_.warning("etcd has confirmed the coordinator, which goes on"); };
  watchers.on_trouble = callbacks_.trouble;
  // Its keeper may be late to end it. If it held the job then, the next one with its id would have to wait.
  watchers.on_ask = [this] {
    if (standing_.has_left() && !standing_.held()) _exit(Siblings::kDone);
  };
  auto journal = std::make_unique<rendezvous::EtcdJournal>(io, etcd_settings(*config_.etcd), std::move(lease),
                                                           std::move(watchers));
  io_ = &io;
  journal_ = journal.get();
  return journal;
}

void Candidate::claimed() {
  const Standing::Inheritance held = journal_->inheritance();
  standing_.hold(held);
  now_held_by({held.epoch, own_});
}

bool Candidate::has_begun() const {
  const std::lock_guard lock(mutex_);
  return holder_.has_value();
}

void Candidate::say_again() const {
  std::optional<Holder> holder;
  {
    const std::lock_guard lock(mutex_);
    holder = holder_;
  }
  if (holder) callbacks_.holder(*holder);
}

void Candidate::set_place(int node_rank) {
  const milliseconds start = node_rank < 0 ? kNoPlace : std::min(kBetweenPlaces * node_rank, kLastPlace);
  asio::post(*io_, [this, start] { journal_->set_head_start(start); });
}

void Candidate::on_other(std::int64_t epoch, const std::string& text) {
  standing_.release();
  const auto note = read_holder_note(text);
  if (const auto* why = std::get_if<std::string>(&note)) {
    return callbacks_.warning("the key in etcd that says which node coordinates is no such note: " + *why);
  }
  const auto& holder = std::get<HolderNote>(note);
  callbacks_.stand_by();
  // One of an earlier process of this node goes with its lease.
  if (holder.node != own_.node) now_held_by({epoch, holder});
}

void Candidate::now_held_by(Holder holder) {
  {
    const std::lock_guard lock(mutex_);
    holder_ = std::move(holder);
  }
  say_again();
}

}  // namespace ddp::launcher
