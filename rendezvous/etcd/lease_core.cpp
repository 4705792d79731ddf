// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/etcd/lease_core.hpp"

#include <algorithm>
#include <utility>

#include "rendezvous/base/check.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::rendezvous {

namespace {

using std::chrono::milliseconds;
using Kind = EtcdRefusal::Kind;

constexpr int kRenewals = 3;  // within the life of a lease
constexpr milliseconds kShortestWait{50}, kLongestWait{1000};
constexpr milliseconds kReleaseWithin{5000};  // longer than an election of etcd takes

// A tenth is for clocks that run at different speeds.
LeaseTime fence_after(LeaseTime asked, std::int64_t seconds) { return asked + milliseconds(900 * seconds); }
LeaseTime renewal_after(LeaseTime asked, std::int64_t seconds) {
  return asked + milliseconds(1000 * seconds / kRenewals);
}

// A job's id as one part of a key: '/' would make the keys of "a" and "a/holder" overlap.
std::string escaped(const std::string& id) {
  std::string text;
  for (const char c : id) {
    if (c == '%') {
      text += "%25";
    } else if (c == '/') {
      text += "%2F";
    } else {
      text += c;
    }
  }
  return text;
}

// ---- Values: a line of facts, and what is the caller's ----

constexpr std::string_view kLeaderWord = "ddprun-holder 1 ", kRecordWord = "ddprun-record 1 ";

struct Split {
  std::string_view line, rest;
};

// Returns nothing if the value does not begin with this word.
std::optional<Split> split(std::string_view value, std::string_view word) {
  const std::size_t end = value.find('\n');
  if (!value.starts_with(word) || end == std::string_view::npos) return std::nullopt;
  return Split{value.substr(word.size(), end - word.size()), value.substr(end + 1)};
}

std::string leader_value(const std::string& self, const std::string& note) {
  return std::string(kLeaderWord) + self + "\n" + note;
}

bool is_of(const KeyValue& leader, const std::string& self) {
  const auto parts = split(leader.value, kLeaderWord);
  return parts && parts->line == self;
}

std::string note_of(const KeyValue& leader) {
  const auto parts = split(leader.value, kLeaderWord);
  return parts ? std::string(parts->rest) : "";
}

struct Written {
  std::int64_t epoch = 0;
  std::uint64_t number = 0;
  std::string_view content;
};

std::string record_value(std::int64_t epoch, std::uint64_t number, const std::string& content) {
  return std::string(kRecordWord) + std::to_string(epoch) + " " + std::to_string(number) + "\n" + content;
}

std::optional<Written> read_record(std::string_view value) {
  const auto parts = split(value, kRecordWord);
  if (!parts) return std::nullopt;
  const std::size_t blank = parts->line.find(' ');
  if (blank == std::string_view::npos) return std::nullopt;
  const auto epoch = parse_number<std::int64_t>(parts->line.substr(0, blank));
  const auto number = parse_number<std::uint64_t>(parts->line.substr(blank + 1));
  if (!epoch || !number) return std::nullopt;
  return Written{*epoch, *number, parts->rest};
}

// Returns whether trying again cannot help.
bool is_final(Kind kind) {
  return kind == Kind::NoSuchApi || kind == Kind::Forbidden || kind == Kind::NotAuthenticated || kind == Kind::NoSpace;
}

void wake(std::optional<LeaseTime>& at, const std::optional<LeaseTime>& other) {
  if (other && (!at || *other < *at)) at = other;
}

}  // namespace

std::string leader_key(const std::string& job) { return "/ddprun/" + escaped(job) + "/holder"; }
std::string record_key(const std::string& job) { return "/ddprun/" + escaped(job) + "/record"; }

LeaseCore::LeaseCore(LeaseConfig config)
    : config_(std::move(config)),
      leader_key_(leader_key(config_.job)),
      record_key_(record_key(config_.job)),
      leader_value_(leader_value(config_.self, config_.note)),
      inherited_(config_.inherited) {
  DDP_CHECK(!config_.job.empty() && !config_.self.empty());
}

// ---- Transactions ----

// Takes the key if nobody has it, or from the process of this machine that hands it on.
Transaction LeaseCore::claim_transaction() const {
  Transaction claim;
  if (inherited_) {
    claim.if_all = {{leader_key_, KeyComparison::Of::Modified, inherited_->epoch},
                    {leader_key_, KeyComparison::Of::Lease, lease_}};
  } else {
    claim.if_all = {{leader_key_, KeyComparison::Of::Created, 0}};
  }
  claim.then = {PutKey{leader_key_, leader_value_, lease_}, ReadKey{record_key_}};
  claim.otherwise = {ReadKey{leader_key_}, ReadKey{record_key_}};
  return claim;
}

Transaction LeaseCore::look_transaction() const { return {{}, {ReadKey{leader_key_}, ReadKey{record_key_}}, {}}; }

Transaction LeaseCore::write_transaction() const {
  return {{{leader_key_, KeyComparison::Of::Modified, epoch_},
           {record_key_, KeyComparison::Of::Modified, record_modified_}},
          {PutKey{record_key_, record_value(epoch_, newest_.number, newest_.text), record_lease_}},
          {ReadKey{leader_key_}, ReadKey{record_key_}}};
}

Transaction LeaseCore::erase_transaction() const {
  return {{{leader_key_, KeyComparison::Of::Modified, epoch_}},
          {DeleteKey{record_key_}, DeleteKey{leader_key_}},
          {ReadKey{leader_key_}}};
}

// ---- Steps ----

void LeaseCore::step(LeaseTime now, const LeaseEvent& event, std::vector<LeaseAction>& actions) {
  now_ = now;
  actions_ = &actions;
  if (phase_ == Phase::Over) return;  // late answers
  doubt_if_late();
  std::visit([this](const auto& one) { on(one); }, event);
  if (phase_ != Phase::Over) advance();
}

std::optional<LeaseTime> LeaseCore::wake_at() const {
  if (phase_ == Phase::Over) return std::nullopt;
  std::optional<LeaseTime> at;
  if (!leases_.asked) {
    std::optional<LeaseTime> due = leases_.retry_at;
    if (!due) {
      wake(due, renew_at_);
      wake(due, renew_record_at_);
    }
    wake(at, due);
  }
  if (!keys_.asked) wake(at, keys_.retry_at ? keys_.retry_at : look_at_);
  wake(at, try_at_);
  wake(at, release_until_);
  if (phase_ == Phase::Leading && is_sure_) wake(at, fence_at_);
  return at;
}

void LeaseCore::doubt_if_late() {
  if (phase_ != Phase::Leading || !is_sure_ || now_ < fence_at_) return;
  is_sure_ = false;
  actions_->push_back(LeaseInDoubt{leases_.trouble.empty() ? "the lease was not renewed in time" : leases_.trouble});
}

void LeaseCore::on(const LeaseStart&) {
  if (inherited_) {
    lease_ = inherited_->lease;
    renew_at_ = now_;
  } else if (!config_.is_candidate) {
    phase_ = Phase::Watching;
    must_look_ = true;
  }
}

void LeaseCore::on(const LeaseTick&) {
  if (try_at_ && now_ >= *try_at_) acquire();
  if (phase_ == Phase::Watching && look_at_ && now_ >= *look_at_) {
    look_at_.reset();
    must_look_ = true;
  }
  if (release_until_ && now_ >= *release_until_) finish_release();
}

void LeaseCore::on(const LeaseWrite& event) {
  DDP_CHECK(event.content.size() <= kMostContentBytes, event.content.size());
  if (phase_ != Phase::Leading) return;
  newest_ = {event.number, event.content};
  must_write_ = true;
}

void LeaseCore::on(const LeaseRelease&) {
  if (phase_ == Phase::Leading) {
    phase_ = Phase::Releasing;
    release_until_ = now_ + kReleaseWithin;
    keys_.retry_at.reset();
  } else if (phase_ != Phase::Releasing) {
    finish_release();
  }
}

// ---- Asking ----

bool LeaseCore::is_idle(Lane& lane) const {
  if (lane.retry_at && now_ >= *lane.retry_at) lane.retry_at.reset();
  return !lane.asked && !lane.retry_at;
}

void LeaseCore::ask(LeaseLane lane, Purpose purpose, EtcdRequest request) {
  Lane& to = lane_of(lane);
  to.asked = Asked{next_ask_++, purpose, now_, lease_};
  to.retry_at.reset();
  actions_->push_back(AskEtcd{to.asked->number, lane, std::move(request)});
}

void LeaseCore::retry(Lane& lane, milliseconds least) {
  lane.backoff = std::clamp(lane.backoff * 2, kShortestWait, kLongestWait);
  lane.retry_at = now_ + std::max(lane.backoff, least);
}

// Asks what is missing, over each lane that is free.
void LeaseCore::advance() {
  if (is_idle(leases_)) advance_leases();
  if (is_idle(keys_)) advance_keys();
}

void LeaseCore::advance_leases() {
  const bool has_lease = lease_ != 0;
  if (has_lease && renew_at_ && now_ >= *renew_at_) {
    if (!std::exchange(is_confirmed_, false)) return ask(LeaseLane::Leases, Purpose::Confirm, look_transaction());
    return ask(LeaseLane::Leases, Purpose::Renew, RenewLease{lease_});
  }
  if (phase_ == Phase::Acquiring && !has_lease) {
    return ask(LeaseLane::Leases, Purpose::Grant, GrantLease{config_.leader_ttl.count()});
  }
  if (record_lease_ != 0 && renew_record_at_ && now_ >= *renew_record_at_) {
    return ask(LeaseLane::Leases, Purpose::RenewRecord, RenewLease{record_lease_});
  }
  if (to_revoke_.empty()) return;
  ask(LeaseLane::Leases, Purpose::Revoke, RevokeLease{to_revoke_.back()});
  to_revoke_.pop_back();
}

void LeaseCore::advance_keys() {
  switch (phase_) {
    case Phase::Acquiring:
      if (lease_ == 0 || (inherited_ && renew_at_ && now_ >= *renew_at_)) return;
      return ask(LeaseLane::Keys, Purpose::Acquire, claim_transaction());
    case Phase::Watching:
      if (must_look_) ask(LeaseLane::Keys, Purpose::Look, look_transaction());
      return;
    case Phase::Leading:
      if (!must_write_) return;
      if (record_lease_ == 0) {
        return ask(LeaseLane::Keys, Purpose::GrantRecord, GrantLease{config_.record_ttl.count()});
      }
      writing_ = newest_.number;
      return ask(LeaseLane::Keys, Purpose::Write, write_transaction());
    case Phase::Releasing:
      if (!are_keys_gone_) ask(LeaseLane::Keys, Purpose::Erase, erase_transaction());
      return;
    case Phase::Over:
      return;
  }
}

// ---- Answers ----

void LeaseCore::on(const LeaseAnswered& event) {
  for (Lane* const lane : {&leases_, &keys_}) {
    if (!lane->asked || lane->asked->number != event.ask) continue;
    const Asked asked = *std::exchange(lane->asked, std::nullopt);
    if (const auto* refusal = std::get_if<EtcdRefusal>(&event.outcome)) return take_refusal(*lane, asked, *refusal);
    lane->backoff = milliseconds(0);
    if (!std::exchange(lane->trouble, "").empty()) actions_->push_back(LeaseTrouble{leases_.trouble + keys_.trouble});
    return take(asked, std::get<EtcdAnswer>(event.outcome));
  }
}

void LeaseCore::take(const Asked& asked, const EtcdAnswer& answer) {
  switch (asked.purpose) {
    case Purpose::Grant:
      return granted(asked, answer);
    case Purpose::Renew:
      return renewed(asked, answer);
    case Purpose::GrantRecord:
      record_lease_ = answer.lease;
      renew_record_at_ = renewal_after(asked.at, answer.seconds);
      return;
    case Purpose::RenewRecord:
      return record_renewed(answer);
    case Purpose::Revoke:
      return;
    case Purpose::Acquire:
      return claimed(asked, answer);
    case Purpose::Confirm:
      return confirmed(asked, answer);
    case Purpose::Look:
      return looked(answer);
    case Purpose::Write:
      return answer.succeeded ? written(answer) : not_written(answer);
    case Purpose::Erase:
      return erased(answer);
  }
}

// Whether no job has begun, as far as this process knows. A job that has begun waits until etcd answers as before.
bool LeaseCore::has_nothing_to_lose() const {
  const bool is_before = phase_ == Phase::Acquiring || phase_ == Phase::Watching;
  return is_before && !config_.is_in_job && !inherited_ && other_epoch_ == 0;
}

void LeaseCore::take_refusal(Lane& lane, const Asked& asked, const EtcdRefusal& refusal) {
  if (asked.purpose == Purpose::Revoke) return;  // it ends by itself
  if (has_nothing_to_lose() && is_final(refusal.kind)) return lose(refusal.why);
  if (refusal.kind == Kind::NoLease) {
    if (asked.purpose == Purpose::Write) return forget_record_lease();
    if (asked.purpose == Purpose::Acquire) {
      inherited_.reset();
      return acquire();
    }
    if (asked.purpose == Purpose::Renew && phase_ == Phase::Leading) return lose("its lease in etcd has ended");
  }
  trouble(lane, refusal.why);
  // Waiting for long would cost the lease; a refusal that says something changes less soon than a connection.
  const bool may_pass_soon = refusal.kind == Kind::Unknown || refusal.kind == Kind::Unsent;
  retry(lane, may_pass_soon ? milliseconds(0) : kLongestWait);
}

void LeaseCore::granted(const Asked& asked, const EtcdAnswer& answer) {
  if (phase_ != Phase::Acquiring) {
    to_revoke_.push_back(answer.lease);
    return;
  }
  lease_ = answer.lease;
  fence_at_ = fence_after(asked.at, answer.seconds);
  renew_at_ = renewal_after(asked.at, answer.seconds);
}

void LeaseCore::renewed(const Asked& asked, const EtcdAnswer& answer) {
  if (answer.lease != lease_) return;
  if (answer.seconds == 0) {
    if (phase_ == Phase::Leading) return lose("its lease in etcd has ended");
    inherited_.reset();
    if (phase_ == Phase::Acquiring) acquire();
    return;
  }
  renew_at_ = renewal_after(asked.at, answer.seconds);
  fence_at_ = fence_after(asked.at, answer.seconds);
  if (phase_ != Phase::Leading || is_sure_ || now_ >= fence_at_) return;
  is_sure_ = true;
  actions_->push_back(LeaseSure{});
  tell_kept();
}

// A member of etcd that was etcd's leader until it was frozen renews leases also if they were revoked meanwhile. Such a
// member cannot answer a read before it knows etcd's new leader, so each renewal follows a read.
void LeaseCore::confirmed(const Asked& asked, const EtcdAnswer& answer) {
  if (asked.lease != lease_) return;
  is_confirmed_ = true;
  if (phase_ != Phase::Leading) return;
  const KeyValue* const leader = answer.find(leader_key_);
  if (leader == nullptr) return lose("its key in etcd is gone");
  if (leader->modified != epoch_) return lose("another process has taken over");
}

void LeaseCore::record_renewed(const EtcdAnswer& answer) {
  if (answer.lease != record_lease_) return;
  if (answer.seconds == 0) return forget_record_lease();
  renew_record_at_ = renewal_after(now_, answer.seconds);
}

// The record went with its lease. The leader has it, and writes it again; a process that watches looks for another one.
void LeaseCore::forget_record_lease() {
  record_lease_ = 0;
  renew_record_at_.reset();
  if (phase_ == Phase::Leading && (newest_.number != 0 || !newest_.text.empty())) must_write_ = true;
  if (phase_ == Phase::Watching) must_look_ = true;
}

void LeaseCore::note_record(const KeyValue* record) {
  record_modified_ = record ? record->modified : 0;
  record_lease_ = record ? record->lease : 0;
  renew_record_at_ = record_lease_ == 0 ? std::nullopt : std::optional(now_);
}

// ---- To become the leader ----

void LeaseCore::acquire() {
  try_at_.reset();
  look_at_.reset();
  must_look_ = false;
  phase_ = Phase::Acquiring;
  lease_ = 0;
  renew_at_.reset();
}

void LeaseCore::claimed(const Asked& asked, const EtcdAnswer& answer) {
  if (phase_ != Phase::Acquiring || asked.lease != lease_) {
    if (answer.succeeded) to_revoke_.push_back(asked.lease);
    return;
  }
  if (answer.succeeded) return lead(answer.revision, answer);
  const KeyValue* const leader = answer.find(leader_key_);
  if (leader == nullptr) {  // what was to be inherited is gone
    inherited_.reset();
    return acquire();
  }
  if (is_of(*leader, config_.self)) {
    // This process's own, by a transaction whose answer was lost; or by one with a lease that is not used any more.
    if (leader->lease == lease_ && asked.at < fence_at_) return lead(leader->modified, answer);
    to_revoke_.push_back(leader->lease);
    retry(keys_);
    return acquire();
  }
  if (!inherited_) to_revoke_.push_back(lease_);
  inherited_.reset();
  lease_ = 0;
  renew_at_.reset();
  watch_other(*leader, answer);
}

void LeaseCore::lead(std::int64_t epoch, const EtcdAnswer& answer) {
  if (now_ >= fence_at_) {  // the answer took longer than the lease may live
    to_revoke_.push_back(lease_);
    inherited_.reset();
    return acquire();
  }
  const KeyValue* const record = answer.find(record_key_);
  const auto content = record ? read_record(record->value) : std::nullopt;
  if (record != nullptr && !content) return lose("the key " + record_key_ + " in etcd is no record of a job");
  phase_ = Phase::Leading;
  epoch_ = epoch;
  inherited_.reset();
  is_watching_ = false;
  note_record(record);
  newest_ = {0, content ? std::string(content->content) : ""};
  is_sure_ = true;
  actions_->push_back(LeaseHeld{epoch_, lease_, newest_.text});
}

// ---- To watch another ----

void LeaseCore::watch_other(const KeyValue& leader, const EtcdAnswer& answer) {
  phase_ = Phase::Watching;
  must_look_ = answer.revision < newest_news_;  // the watch was faster
  if (must_look_) return;
  try_at_.reset();
  note_record(answer.find(record_key_));
  tell_other(leader);
  watch_from(answer.revision + 1);
}

void LeaseCore::tell_other(const KeyValue& leader) {
  if (std::exchange(other_epoch_, leader.modified) == leader.modified) return;
  actions_->push_back(LeaseOfOther{leader.modified, note_of(leader)});
}

// A watch over a frozen member is silent, so there is a look now and then.
void LeaseCore::watch_from(std::int64_t revision) {
  look_at_ = now_ + config_.record_ttl / kRenewals;
  if (std::exchange(is_watching_, true)) return;
  actions_->push_back(WatchEtcd{{leader_key_, revision}});
}

void LeaseCore::looked(const EtcdAnswer& answer) {
  if (phase_ != Phase::Watching) return;
  must_look_ = answer.revision < newest_news_;
  if (must_look_) return;
  if (const KeyValue* const leader = answer.find(leader_key_)) return watch_other(*leader, answer);
  note_record(answer.find(record_key_));
  if (config_.is_candidate && !try_at_) try_at_ = now_ + config_.head_start;
  watch_from(answer.revision + 1);
}

void LeaseCore::on(const LeaseNews& event) {
  for (const WatchNews::Event& one : event.news.events) {
    if (one.key.key != leader_key_) continue;
    newest_news_ = std::max(newest_news_, one.key.modified);
    if (phase_ != Phase::Watching) continue;
    if (!one.is_deleted) {
      try_at_.reset();
      tell_other(one.key);
    } else if (config_.is_candidate) {
      try_at_ = now_ + config_.head_start;
    }
  }
  if (try_at_ && now_ >= *try_at_) acquire();
}

void LeaseCore::on(const LeaseWatchOver& event) {
  is_watching_ = false;
  if (phase_ != Phase::Watching) return;
  if (has_nothing_to_lose() && is_final(event.why.kind)) return lose(event.why.why);
  must_look_ = true;
  retry(keys_);
}

// ---- To hold ----

void LeaseCore::written(const EtcdAnswer& answer) {
  record_modified_ = answer.revision;
  must_write_ = newest_.number != writing_;
  kept_ = writing_;
  tell_kept();
}

// What is kept is of no use to a leader that may tell nobody.
void LeaseCore::tell_kept() {
  if (phase_ != Phase::Leading || !is_sure_ || kept_ <= told_kept_) return;
  told_kept_ = kept_;
  actions_->push_back(LeaseKept{kept_});
}

void LeaseCore::not_written(const EtcdAnswer& answer) {
  if (phase_ != Phase::Leading) return;
  const KeyValue* const leader = answer.find(leader_key_);
  if (leader == nullptr) return lose("its key in etcd is gone");
  if (leader->modified != epoch_) return lose("another process has taken over");
  const KeyValue* const record = answer.find(record_key_);
  if (record == nullptr) {
    record_modified_ = 0;
    return forget_record_lease();
  }
  const auto known = read_record(record->value);
  if (!known || known->epoch != epoch_) return lose("something else writes to " + record_key_ + " in etcd");
  record_modified_ = record->modified;
  if (known->number != writing_) return;  // an earlier write, whose answer was lost
  must_write_ = newest_.number != writing_;
  kept_ = writing_;
  tell_kept();
}

void LeaseCore::lose(const std::string& why) {
  phase_ = Phase::Over;
  is_sure_ = false;
  actions_->push_back(LeaseLost{why});
}

// ---- To end ----

void LeaseCore::erased(const EtcdAnswer& answer) {
  if (phase_ != Phase::Releasing) return;
  are_keys_gone_ = answer.succeeded || answer.find(leader_key_) == nullptr;
  finish_release();
}

// The leases of keys that are gone end by themselves; nobody waits for that.
void LeaseCore::finish_release() {
  if (lease_ != 0 && !inherited_) {
    ask(LeaseLane::Leases, Purpose::Revoke, RevokeLease{lease_});
    if (are_keys_gone_ && record_lease_ != 0) {
      ask(LeaseLane::Leases, Purpose::Revoke, RevokeLease{record_lease_});
    }
  }
  phase_ = Phase::Over;
  actions_->push_back(LeaseReleased{are_keys_gone_});
}

void LeaseCore::trouble(Lane& lane, const std::string& why) {
  if (why == lane.trouble) return;
  lane.trouble = why;
  actions_->push_back(LeaseTrouble{why});
}

}  // namespace ddp::rendezvous
