// SPDX-License-Identifier: BSD-3-Clause
// Nodes that meet in etcd: every node has sidecars, since each can lead, and its candidate says which one does.
#include "launcher/coordination/meeting.hpp"
#include "rendezvous/etcd/tls/tls_session.hpp"

namespace ddp::launcher {

namespace {

class EtcdMeeting : public Meeting {
 public:
  EtcdMeeting(const LaunchConfig& config, Sidecars& sidecars) : config_(config), sidecars_(sidecars) {
    if (const auto files = etcd_settings(*config.etcd).tls) rendezvous::TlsContext{*files};  // throws what is wrong
  }

  std::string where() const override { return "the node that etcd names"; }
  std::optional<Start> try_to_lead() override {
    return Start{config_.store_addresses, rendezvous::listen_on(config_.store_addresses, 0)};
  }
  rendezvous::LinkTarget target() const override {
    rendezvous::LinkTarget target{.hosts = {}, .ports = {}, .job = rendezvous::job_tag(config_.job.id)};
    if (!leader_) return target;
    target.hosts = leader_->note.addresses;
    target.ports = {leader_->note.port};
    return target;
  }
  bool is_known() const override { return leader_.has_value(); }
  bool leads() const override { return leader_ && leader_->note.node == sidecars_.node(); }

  // News of a candidate that was killed may come late, and each is sent more than once.
  bool take(const Leader& leader) override {
    if (leader_ && leader.epoch <= leader_->epoch) return false;
    const bool is_same = leader_ && leader_->note == leader.note;
    leader_ = leader;
    return !is_same;
  }
  void ask_again() override { sidecars_.ask_for_leader(); }

 private:
  const LaunchConfig& config_;
  Sidecars& sidecars_;
  std::optional<Leader> leader_;
};

}  // namespace

std::unique_ptr<Meeting> meeting_in_etcd(const LaunchConfig& config, Sidecars& sidecars) {
  return std::make_unique<EtcdMeeting>(config, sidecars);
}

}  // namespace ddp::launcher
