// SPDX-License-Identifier: BSD-3-Clause
// A cluster of etcd as lease_core has to know it, with a clock of its own: keys, revisions, transactions, leases that
// end with their keys, and a leader that may be lost.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/etcd/messages.hpp"

namespace ddp::rendezvous {

class EtcdModel {
 public:
  using Time = std::chrono::nanoseconds;

  struct Event {
    std::int64_t revision = 0;
    WatchNews::Event event;
  };

  // Moves its clock; leases end meanwhile, unless there is no leader.
  void advance(Time now) {
    now_ = now;
    if (!has_leader_) return;
    for (auto lease = leases_.begin(); lease != leases_.end();) {
      const LeaseId id = lease->first;
      const bool is_over = lease->second.ends <= now_;
      ++lease;
      if (is_over) end_lease(id);
    }
  }

  bool has_leader() const { return has_leader_; }
  void lose_leader() { has_leader_ = false; }
  // A new leader gives each lease its whole life again.
  void elect() {
    has_leader_ = true;
    for (auto& [id, lease] : leases_) lease.ends = now_ + std::chrono::seconds(lease.seconds);
  }
  bool is_full = false;

  EtcdOutcome apply(const EtcdRequest& request) {
    return std::visit([this](const auto& one) { return on(one); }, request);
  }

  const KeyValue* find(const std::string& key) const {
    const auto found = keys_.find(key);
    return found == keys_.end() ? nullptr : &found->second;
  }
  std::int64_t revision() const { return revision_; }
  std::size_t size() const { return keys_.size(); }
  const std::vector<Event>& events() const { return events_; }

 private:
  struct Lease {
    std::int64_t seconds = 0;
    Time ends{0};
  };

  static EtcdRefusal refusal(EtcdRefusal::Kind kind) { return {kind, "no"}; }
  EtcdAnswer answer() const { return {.revision = revision_}; }

  EtcdOutcome on(const GrantLease& grant) {
    if (is_full) return refusal(EtcdRefusal::Kind::NoSpace);
    const std::int64_t seconds = std::max<std::int64_t>(grant.seconds, 2);
    leases_[++next_lease_] = {seconds, now_ + std::chrono::seconds(seconds)};
    EtcdAnswer granted = answer();
    granted.lease = next_lease_;
    granted.seconds = seconds;
    return granted;
  }
  EtcdOutcome on(const RenewLease& renew) {
    EtcdAnswer renewed = answer();
    renewed.lease = renew.lease;
    const auto lease = leases_.find(renew.lease);
    if (lease == leases_.end()) return renewed;
    lease->second.ends = now_ + std::chrono::seconds(lease->second.seconds);
    renewed.seconds = lease->second.seconds;
    return renewed;
  }
  EtcdOutcome on(const RevokeLease& revoke) {
    if (leases_.count(revoke.lease) == 0) return refusal(EtcdRefusal::Kind::NoLease);
    end_lease(revoke.lease);
    return answer();
  }
  EtcdOutcome on(const Transaction& transaction) {
    bool is_true = true;
    for (const KeyComparison& one : transaction.if_all) is_true = is_true && value_of(one) == one.equals;
    const auto& operations = is_true ? transaction.then : transaction.otherwise;
    bool changes = false;
    for (const KeyOperation& one : operations) {
      if (const auto* put = std::get_if<PutKey>(&one)) {
        if (put->lease != 0 && leases_.count(put->lease) == 0) return refusal(EtcdRefusal::Kind::NoLease);
        if (is_full) return refusal(EtcdRefusal::Kind::NoSpace);
      }
      changes = changes || !std::holds_alternative<ReadKey>(one);
    }
    if (changes) ++revision_;
    EtcdAnswer done = answer();
    done.succeeded = is_true;
    for (const KeyOperation& one : operations) carry_out(one, done);
    return done;
  }
  template <typename Other>
  EtcdOutcome on(const Other&) {
    return refusal(EtcdRefusal::Kind::Other);  // lease_core does not ask it
  }

  std::int64_t value_of(const KeyComparison& one) const {
    const KeyValue* const found = find(one.key);
    if (found == nullptr) return 0;
    if (one.of == KeyComparison::Of::Created) return found->created;
    return one.of == KeyComparison::Of::Modified ? found->modified : found->lease;
  }

  void carry_out(const KeyOperation& operation, EtcdAnswer& to) {
    if (const auto* read = std::get_if<ReadKey>(&operation)) {
      if (const KeyValue* const found = find(read->key)) to.keys.push_back(*found);
    } else if (const auto* put = std::get_if<PutKey>(&operation)) {
      KeyValue& key = keys_[put->key];
      if (key.created == 0) key.created = revision_;
      key.key = put->key;
      key.value = put->value;
      key.modified = revision_;
      key.lease = put->lease;
      events_.push_back({revision_, {false, key}});
    } else {
      erase(std::get<DeleteKey>(operation).key);
    }
  }

  void erase(const std::string& key) {
    if (keys_.erase(key) == 0) return;
    events_.push_back({revision_, {true, {.key = key, .value = {}, .created = 0, .modified = revision_, .lease = 0}}});
  }

  void end_lease(LeaseId id) {
    leases_.erase(id);
    std::vector<std::string> gone;
    for (const auto& [key, value] : keys_) {
      if (value.lease == id) gone.push_back(key);
    }
    if (!gone.empty()) ++revision_;
    for (const std::string& key : gone) erase(key);
  }

  Time now_{0};
  bool has_leader_ = true;
  std::int64_t revision_ = 1;
  LeaseId next_lease_ = 100;
  std::map<std::string, KeyValue> keys_;
  std::map<LeaseId, Lease> leases_;
  std::vector<Event> events_;
};

}  // namespace ddp::rendezvous
