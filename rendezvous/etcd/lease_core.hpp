// SPDX-License-Identifier: BSD-3-Clause
// Elects the leader of a job whose record is in etcd, by a lease, and keeps that record. A value: (now, event) in,
// actions out; no socket, clock or thread inside.
//
//     acquiring ──▶ leading ◀──▶ in doubt ──▶ over        keys of the job J, each of which goes with its lease
//         ▲  │         └────────────┴──▶ releasing ─▶ over    /ddprun/J/holder   5 s: who leads
//         │  ▼                                                /ddprun/J/record   60 s: what it has decided
//       watching (another process leads)
//
// The epoch numbers a leader's term: it is the revision at which the leader's key got its value, so each one is greater
// than those before. It is the fence: each write compares it and the record's revision within one transaction, so a
// leader that was replaced can write nothing, and a write that was delayed or repeated happens once or not at all.
//
// What follows from which event:
//
//   event                                  what follows
//   the key of the leader is deleted       a try after `head_start`; one process wins, the others watch it
//   a renewal is answered                  sure for 9/10 of the lease, counted from before it was asked
//   that time has passed                   in doubt: nothing may be told to anybody. A process that was stopped doubts
//                                          before it does anything else
//   in doubt, a read and then a renewal    sure again: with the same epoch the key was there all the time
//   the key is another's, or is gone       lost
//   no answer to a write                   the same transaction again; if that fails, what is in etcd says which it was
//   the lease of the record has ended      a new lease and the newest record, which is here
//   503, a timeout, no quorum              tried again; it says nothing about the lease
//   no space                               writes are tried again each second; renewals need no space. A process whose
//                                          job has not begun gives up
//
// Times are the boot clock's, which goes on while the machine sleeps. Clocks of two machines are never compared.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/etcd/messages.hpp"

namespace ddp::rendezvous {

struct LeaseConfig {
  std::string job;        // its id, any bytes
  std::string self;       // random: names this process
  std::string note = {};  // for those who watch, such as where the leader listens
  std::chrono::seconds leader_ttl{5};
  std::chrono::seconds record_ttl{60};
  std::chrono::milliseconds head_start{0};  // between the end of a leader and the try, so that not all try at once
  bool is_candidate = true;                 // false: it only watches
  bool is_in_job = false;                   // its node is part of a job that has begun
  // What another process of this machine has held and hands on.
  struct Inheritance {
    LeaseId lease = 0;
    std::int64_t epoch = 0;
  };
  std::optional<Inheritance> inherited = {};
};

// The keys of a job. Different ids have different keys, whatever characters they have.
std::string leader_key(const std::string& job);
std::string record_key(const std::string& job);

using LeaseTime = std::chrono::steady_clock::time_point;

// ---- events ----
struct LeaseStart {};  // the first one
struct LeaseTick {};   // the time has come that wake_at() named
struct LeaseAnswered {
  std::uint64_t ask = 0;
  EtcdOutcome outcome;
};
struct LeaseNews {
  WatchNews news;
};
struct LeaseWatchOver {
  EtcdRefusal why;
};
struct LeaseWrite {  // only after LeaseHeld
  std::uint64_t number = 0;
  std::string content;  // at most kMostContentBytes
};
struct LeaseRelease {};  // the job is over: its keys are to go
using LeaseEvent =
    std::variant<LeaseStart, LeaseTick, LeaseAnswered, LeaseNews, LeaseWatchOver, LeaseWrite, LeaseRelease>;

// ---- actions ----
enum class LeaseLane { Leases, Keys };  // what is asked over one does not wait for the other
struct AskEtcd {                        // LeaseAnswered with the same number follows
  std::uint64_t ask = 0;
  LeaseLane lane = LeaseLane::Keys;
  EtcdRequest request;
};
struct WatchEtcd {
  WatchKey what;
};
struct LeaseHeld {
  std::int64_t epoch = 0;
  LeaseId lease = 0;
  std::string content;  // the newest record's; empty: there is none
};
struct LeaseOfOther {
  std::int64_t epoch = 0;
  std::string note;
};
struct LeaseKept {  // the write with this number, or one with a higher number, is in etcd
  std::uint64_t number = 0;
};
struct LeaseInDoubt {  // nothing may be told to anybody from now on
  std::string why;
};
struct LeaseSure {};  // after LeaseInDoubt: it may be again
struct LeaseLost {    // the last action
  std::string why;
};
struct LeaseReleased {  // the last action
  bool are_keys_gone = false;
};
struct LeaseTrouble {  // for the log
  std::string why;     // empty: there is none any more
};
using LeaseAction = std::variant<AskEtcd, WatchEtcd, LeaseHeld, LeaseOfOther, LeaseKept, LeaseInDoubt, LeaseSure,
                                 LeaseLost, LeaseReleased, LeaseTrouble>;

inline constexpr std::size_t kMostContentBytes = kMostValueBytes - 256;  // with a line before it

class LeaseCore {
 public:
  explicit LeaseCore(LeaseConfig config);

  // Counts from the next end of a leader on.
  void set_head_start(std::chrono::milliseconds head_start) { config_.head_start = head_start; }

  void step(LeaseTime now, const LeaseEvent& event, std::vector<LeaseAction>& actions);
  std::optional<LeaseTime> wake_at() const;

  // Returns whether the leader may tell anybody anything at this moment. Ask it before each word, with the time of now:
  // a process that was stopped has not had its tick yet.
  bool is_sure(LeaseTime now) const { return phase_ == Phase::Leading && is_sure_ && now < fence_at_; }
  std::int64_t epoch() const { return epoch_; }
  bool is_over() const { return phase_ == Phase::Over; }

 private:
  enum class Phase { Acquiring, Watching, Leading, Releasing, Over };
  enum class Purpose { Grant, Renew, GrantRecord, RenewRecord, Revoke, Confirm, Acquire, Look, Write, Erase };
  struct Asked {
    std::uint64_t number = 0;
    Purpose purpose = Purpose::Look;
    LeaseTime at;
    LeaseId lease = 0;  // the leader's at that time
  };
  struct Lane {
    std::optional<Asked> asked;
    std::optional<LeaseTime> retry_at;
    std::chrono::milliseconds backoff{0};
    std::string trouble = {};  // the newest, said once
  };
  struct Content {
    std::uint64_t number = 0;
    std::string text;
  };

  void on(const LeaseStart& event);
  void on(const LeaseTick& event);
  void on(const LeaseAnswered& event);
  void on(const LeaseNews& event);
  void on(const LeaseWatchOver& event);
  void on(const LeaseWrite& event);
  void on(const LeaseRelease& event);

  void doubt_if_late();
  void advance();
  void advance_leases();
  void advance_keys();
  void ask(LeaseLane lane, Purpose purpose, EtcdRequest request);
  bool is_idle(Lane& lane) const;
  void retry(Lane& lane, std::chrono::milliseconds least = {});
  Lane& lane_of(LeaseLane which) { return which == LeaseLane::Leases ? leases_ : keys_; }

  void take(const Asked& asked, const EtcdAnswer& answer);
  void take_refusal(Lane& lane, const Asked& asked, const EtcdRefusal& refusal);
  void granted(const Asked& asked, const EtcdAnswer& answer);
  void renewed(const Asked& asked, const EtcdAnswer& answer);
  void record_renewed(const EtcdAnswer& answer);
  void claimed(const Asked& asked, const EtcdAnswer& answer);
  void looked(const EtcdAnswer& answer);
  void confirmed(const Asked& asked, const EtcdAnswer& answer);
  void written(const EtcdAnswer& answer);
  void not_written(const EtcdAnswer& answer);
  void erased(const EtcdAnswer& answer);

  void acquire();
  void lead(std::int64_t epoch, const EtcdAnswer& answer);
  void watch_other(const KeyValue& leader, const EtcdAnswer& answer);
  void tell_other(const KeyValue& leader);
  void watch_from(std::int64_t revision);
  void tell_kept();
  void note_record(const KeyValue* record);
  void forget_record_lease();
  bool has_nothing_to_lose() const;
  void lose(const std::string& why);
  void finish_release();
  void trouble(Lane& lane, const std::string& why);

  Transaction claim_transaction() const;
  Transaction look_transaction() const;
  Transaction write_transaction() const;
  Transaction erase_transaction() const;

  LeaseConfig config_;
  const std::string leader_key_, record_key_, leader_value_;
  Phase phase_ = Phase::Acquiring;
  Lane leases_, keys_;
  std::uint64_t next_ask_ = 1;

  LeaseId lease_ = 0;  // the leader's; 0: none is granted
  std::optional<LeaseConfig::Inheritance> inherited_;
  LeaseTime fence_at_;  // until then the lease lives, whatever clock etcd has
  std::optional<LeaseTime> renew_at_;
  bool is_sure_ = false;
  bool is_confirmed_ = false;  // a read has shown that the member of etcd that is asked knows etcd's newest leader
  std::int64_t epoch_ = 0;
  std::vector<LeaseId> to_revoke_;

  std::int64_t record_modified_ = 0;  // 0: there is no record
  LeaseId record_lease_ = 0;          // 0: a new one is needed
  std::optional<LeaseTime> renew_record_at_;
  Content newest_;           // what was written last, or is to be
  bool must_write_ = false;  // newest_ is not in etcd yet
  std::uint64_t writing_ = 0, kept_ = 0, told_kept_ = 0;

  bool must_look_ = false, is_watching_ = false;
  std::int64_t newest_news_ = 0, other_epoch_ = 0;  // revisions of the leader's key
  std::optional<LeaseTime> look_at_, try_at_, release_until_;
  bool are_keys_gone_ = false;
  LeaseTime now_;
  std::vector<LeaseAction>* actions_ = nullptr;
};

}  // namespace ddp::rendezvous
