// SPDX-License-Identifier: BSD-3-Clause
// The rules of lease_core, one at a time, with a cluster of etcd that answers when the test lets it.
#include "rendezvous/etcd/lease_core.hpp"

#include <catch2/catch.hpp>
#include <deque>
#include <string>

#include "tests/rendezvous/etcd/etcd_model.hpp"

using Catch::Matchers::Contains;

namespace ddp::rendezvous {
namespace {

using namespace std::chrono_literals;
using Kind = EtcdRefusal::Kind;

constexpr LeaseTime kBegin(1000s);

// A process with its requests, which are answered at once, or not.
class Candidate {
 public:
  explicit Candidate(EtcdModel& etcd, LeaseConfig config = {.job = "j", .self = "a"}, LeaseTime begins = kBegin)
      : now(begins), etcd_(etcd), core_(std::move(config)) {
    give(LeaseStart{});
  }
  LeaseCore& core() { return core_; }
  LeaseTime now;
  bool is_cut = false;
  std::optional<EtcdRefusal> refused = {};
  std::string said;  // every action but requests, as words

  void give(const LeaseEvent& event) {
    std::vector<LeaseAction> actions;
    core_.step(now, event, actions);
    for (const LeaseAction& action : actions) std::visit([this](const auto& one) { note(one); }, action);
    while (!asked_.empty()) {
      const AskEtcd ask = asked_.front();
      asked_.pop_front();
      give(LeaseAnswered{ask.ask, refused  ? EtcdOutcome(*refused)
                                  : is_cut ? EtcdOutcome(EtcdRefusal{Kind::Unknown, "no answer"})
                                           : etcd_.apply(ask.request)});
    }
  }
  // Lets this time pass, with every tick that is asked for.
  void pass(std::chrono::milliseconds time) {
    const LeaseTime end = now + time;
    while (core_.wake_at() && *core_.wake_at() <= end) {
      move_to(std::max(now, *core_.wake_at()));
      give(LeaseTick{});
    }
    move_to(end);
  }
  // Lets it pass for everybody but this process.
  void move_to(LeaseTime time) {
    now = time;
    etcd_.advance(now - kBegin);
  }

 private:
  void note(const AskEtcd& action) { asked_.push_back(action); }
  void note(const WatchEtcd& action) { said += "watch " + std::to_string(action.what.from) + "; "; }
  void note(const LeaseHeld& action) { said += "held '" + action.content + "'; "; }
  void note(const LeaseOfOther& action) { said += "other '" + action.note + "'; "; }
  void note(const LeaseKept& action) { said += "kept " + std::to_string(action.number) + "; "; }
  void note(const LeaseInDoubt& action) { said += "doubt (" + action.why + "); "; }
  void note(const LeaseSure&) { said += "sure; "; }
  void note(const LeaseLost& action) { said += "lost (" + action.why + "); "; }
  void note(const LeaseReleased& action) { said += action.are_keys_gone ? "released; " : "left; "; }
  void note(const LeaseTrouble& action) { said += "trouble (" + action.why + "); "; }

  EtcdModel& etcd_;
  LeaseCore core_;
  std::deque<AskEtcd> asked_;
};

TEST_CASE("etcd lease: a leader writes, renews and releases", "[rendezvous][unit]") {
  EtcdModel etcd;
  Candidate a(etcd);
  CHECK(a.said == "held ''; ");
  a.give(LeaseWrite{1, "one"});
  a.give(LeaseWrite{2, "two"});
  CHECK(a.said == "held ''; kept 1; kept 2; ");
  a.pass(300s);
  CHECK(a.core().is_sure(a.now));
  CHECK(etcd.find(record_key("j"))->value.ends_with("\ntwo"));
  a.give(LeaseRelease{});
  CHECK(a.said == "held ''; kept 1; kept 2; released; ");
  CHECK(etcd.size() == 0);
}

TEST_CASE("etcd lease: a leader that was stopped doubts before it does anything else", "[rendezvous][unit]") {
  EtcdModel etcd;
  Candidate a(etcd);
  CHECK(a.core().is_sure(a.now));
  a.move_to(a.now + 4499ms);
  CHECK(a.core().is_sure(a.now));
  a.move_to(a.now + 1ms);
  CHECK_FALSE(a.core().is_sure(a.now));
  a.said.clear();
  a.give(LeaseWrite{1, "one"});  // its key is there yet: it becomes sure again, and only then says what is kept
  CHECK(a.said == "doubt (the lease was not renewed in time); sure; kept 1; ");
  a.move_to(a.now + 6s);
  Candidate b(etcd, {.job = "j", .self = "b"});
  CHECK(b.said == "held 'one'; ");
  a.said.clear();
  a.give(LeaseTick{});
  CHECK(a.said == "doubt (the lease was not renewed in time); lost (another process has taken over); ");
}

TEST_CASE("etcd lease: silence of etcd is doubt and not loss, and a new leader's grace is used", "[rendezvous][unit]") {
  EtcdModel etcd;
  Candidate a(etcd);
  a.is_cut = true;
  etcd.lose_leader();
  a.said.clear();
  a.pass(20s);
  CHECK(a.said == "trouble (no answer); doubt (no answer); ");
  etcd.elect();
  a.is_cut = false;
  a.pass(3s);
  CHECK(a.said == "trouble (no answer); doubt (no answer); trouble (); sure; ");
}

TEST_CASE("etcd lease: a write whose answer was lost is done once", "[rendezvous][unit]") {
  EtcdModel etcd;
  LeaseCore core({.job = "j", .self = "a"});
  const LeaseTime now(1000s);
  std::vector<LeaseAction> actions;
  const auto next = [&](const LeaseEvent& event) {
    actions.clear();
    core.step(now, event, actions);
    for (const LeaseAction& action : actions) {
      if (const auto* ask = std::get_if<AskEtcd>(&action)) return *ask;
    }
    return AskEtcd{};
  };
  AskEtcd ask = next(LeaseStart{});
  ask = next(LeaseAnswered{ask.ask, etcd.apply(ask.request)});  // the lease
  next(LeaseAnswered{ask.ask, etcd.apply(ask.request)});        // the key
  ask = next(LeaseWrite{1, "one"});
  ask = next(LeaseAnswered{ask.ask, etcd.apply(ask.request)});  // the record's lease
  etcd.apply(ask.request);
  const std::int64_t revision = etcd.revision();
  next(LeaseAnswered{ask.ask, EtcdRefusal{Kind::Unknown, "no answer"}});
  actions.clear();
  core.step(now + 1s, LeaseTick{}, actions);
  REQUIRE(actions.size() == 1);
  ask = std::get<AskEtcd>(actions[0]);
  actions.clear();
  core.step(now + 1s, LeaseAnswered{ask.ask, etcd.apply(ask.request)}, actions);
  REQUIRE(actions.size() > 1);
  CHECK(std::get<LeaseTrouble>(actions[0]).why.empty());  // any more
  CHECK(std::get<LeaseKept>(actions[1]).number == 1);
  CHECK(etcd.revision() == revision);
}

TEST_CASE("etcd lease: a full etcd refuses a new job, and costs a running one no more than time",
          "[rendezvous][unit]") {
  EtcdModel etcd;
  Candidate a(etcd);
  etcd.is_full = true;
  a.said.clear();
  a.give(LeaseWrite{1, "one"});
  a.pass(10s);
  CHECK(a.said == "trouble (no); ");
  Candidate b(etcd, {.job = "other", .self = "b"});
  CHECK(b.said == "lost (no); ");
  etcd.is_full = false;
  a.pass(2s);
  CHECK(a.said == "trouble (no); trouble (); kept 1; ");
}

TEST_CASE("etcd lease: a record whose lease has ended comes back, written by this leader or found",
          "[rendezvous][unit]") {
  EtcdModel etcd;
  const auto end_record = [&etcd] {
    etcd.apply(RevokeLease{etcd.find(record_key("j"))->lease});
    CHECK(etcd.find(record_key("j")) == nullptr);
  };
  Candidate a(etcd);
  a.give(LeaseWrite{1, "one"});
  end_record();
  a.pass(30s);
  REQUIRE(etcd.find(record_key("j")) != nullptr);
  CHECK(etcd.find(record_key("j"))->value.ends_with("\none"));
  a.move_to(a.now + 6s);
  Candidate b(etcd, {.job = "j", .self = "b"}, a.now);
  CHECK(b.said == "held 'one'; ");
  end_record();
  b.pass(30s);
  REQUIRE(etcd.find(record_key("j")) != nullptr);
  CHECK(etcd.find(record_key("j"))->value.ends_with("\none"));
  CHECK(b.said == "held 'one'; ");  // the caller hears nothing of it
}

TEST_CASE("etcd lease: a user whom etcd no longer knows costs a job that has begun no more than time",
          "[rendezvous][unit]") {
  EtcdModel etcd;
  const EtcdRefusal wrong{Kind::Forbidden, "invalid password"};
  Candidate a(etcd), b(etcd, {.job = "j", .self = "b"});
  a.said.clear();
  b.said.clear();
  a.refused = b.refused = wrong;
  a.pass(3s);
  CHECK(a.said == "trouble (invalid password); ");
  b.pass(1s);
  b.give(LeaseWatchOver{wrong});
  b.pass(2s);
  CHECK(b.said == "trouble (invalid password); ");
  a.refused = b.refused = std::nullopt;
  a.pass(1s);
  b.pass(1s);
  CHECK(a.said == "trouble (invalid password); trouble (); ");
  CHECK_THAT(b.said, Catch::StartsWith("trouble (invalid password); trouble (); watch "));
  CHECK(a.core().is_sure(a.now));
}

TEST_CASE("etcd lease: jobs have keys of their own, whatever their ids are", "[rendezvous][unit]") {
  CHECK(leader_key("a") == "/ddprun/a/holder");
  CHECK(record_key("a/holder") != leader_key("a") + "/record");
  CHECK(leader_key("a%2Fb") != leader_key("a/b"));
}

TEST_CASE("etcd lease: a process that only watches learns who holds, and never tries", "[rendezvous][unit]") {
  EtcdModel etcd;
  LeaseConfig config{.job = "j", .self = "w"};
  config.is_candidate = false;
  Candidate w(etcd, config);
  CHECK(w.said == "watch 2; ");
  Candidate a(etcd, {.job = "j", .self = "a", .note = "10.0.0.1:4711"});
  w.give(LeaseNews{{2, {etcd.events()[0].event}}});
  CHECK(w.said == "watch 2; other '10.0.0.1:4711'; ");
  w.pass(100s);
  CHECK(w.said == "watch 2; other '10.0.0.1:4711'; ");
}

TEST_CASE("etcd lease: a key that something else wrote is refused", "[rendezvous][unit]") {
  EtcdModel etcd;
  etcd.apply(Transaction{{}, {PutKey{record_key("j"), "what is this"}}, {}});
  Candidate a(etcd);
  CHECK_THAT(a.said, Contains("lost (the key /ddprun/j/record in etcd is no record of a job)"));
}

TEST_CASE("etcd lease: without room in etcd a job that has begun waits, and another one does not begin",
          "[rendezvous][unit]") {
  EtcdModel etcd;
  etcd.is_full = true;
  Candidate stranger(etcd);
  CHECK_THAT(stranger.said, Contains("lost ("));
  LeaseConfig member = {.job = "j", .self = "b"};
  member.is_in_job = true;
  Candidate b(etcd, member);
  b.pass(20s);
  CHECK_THAT(b.said, Contains("trouble (") && !Contains("lost ("));
  etcd.is_full = false;
  b.pass(2s);
  CHECK_THAT(b.said, Contains("held ''; "));
  // What one process hands on to the next needs no room as long as it is not taken over.
  etcd.is_full = true;
  LeaseConfig heir = {.job = "j", .self = "c"};
  heir.inherited = LeaseConfig::Inheritance{etcd.find(leader_key("j"))->lease, b.core().epoch()};
  Candidate c(etcd, heir, b.now);
  c.pass(60s);
  CHECK_THAT(c.said, !Contains("lost ("));
  etcd.is_full = false;
  c.pass(2s);
  CHECK_THAT(c.said, Contains("held ''; "));
}

}  // namespace
}  // namespace ddp::rendezvous
