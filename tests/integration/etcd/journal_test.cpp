// SPDX-License-Identifier: BSD-3-Clause
// The journal with a real etcd: who may write, what a later one finds, and what becomes of it when etcd fails.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <deque>
#include <sstream>
#include <string>
#include <vector>

#include "tests/integration/etcd/cluster.hpp"
#include "tests/support/environment.hpp"

using namespace ddp::rendezvous;
using namespace ddp::testing;
using Catch::Matchers::Contains;

namespace {

using namespace std::chrono_literals;

TEST_CASE("etcd journal: one process claims a job, and the next one finds what was kept", "[etcd][integration]") {
  const EtcdCluster etcd = EtcdCluster::shared();
  EtcdLoop loop;
  LeaseConfig config = lease_of_own_job();
  EtcdCandidate first(loop, etcd.settings(), config);
  first.claimed();
  CHECK(first.claim->content.empty());
  loop.until([&] { return first.journal->may_tell(); }, "that it is sure");
  first.keep("one");
  const std::string bytes = std::string("\0\n", 2) + std::string(kMostContentBytes - 2, '\xfe');
  first.keep(bytes);

  EtcdCandidate second(loop, etcd.settings(), rival_of(config));
  loop.until([&] { return second.other == "10.0.0.1:4711"; }, "the first one's note");
  CHECK_FALSE(second.claim);
  CHECK_FALSE(second.journal->may_tell());

  // Another job goes its own way, also one whose id begins as the first one's.
  LeaseConfig longer = rival_of(config);
  longer.job += "/holder";
  EtcdCandidate stranger(loop, etcd.settings(), longer);
  stranger.claimed();
  CHECK(stranger.claim->content.empty());

  first.journal.reset();  // as if it was killed
  second.claimed();
  CHECK(second.claim->content == bytes);
  CHECK(std::stoll(second.claim->epoch) > std::stoll(first.claim->epoch));
  second.keep("two");

  // The lease is revoked, for one that is dead; were it alive, it could write nothing any more.
  EtcdCandidate third(loop, etcd.settings(), rival_of(config));
  loop.until([&] { return third.other == "10.0.0.2:4711"; }, "the second one's note");
  EtcdClient client(loop.io, etcd.settings());
  loop.answer(client, RevokeLease{second.journal->inheritance().lease});
  third.claimed();
  CHECK(third.claim->content == "two");
  second.journal->write(++second.written, "three");
  loop.until([&] { return !second.lost.empty(); }, "that the second one has lost it");
  CHECK_FALSE(second.journal->may_tell());
  CHECK(second.kept == 1);

  // A process of the same machine inherits it, without waiting.
  const auto inheritance = third.journal->inheritance();
  third.journal.reset();
  LeaseConfig heir = rival_of(config);
  heir.inherited = inheritance;
  EtcdCandidate fourth(loop, etcd.settings(), heir);
  fourth.claimed();
  CHECK(fourth.claim->content == "two");
  CHECK(fourth.journal->inheritance().lease == inheritance.lease);
  CHECK(fourth.journal->inheritance().epoch > inheritance.epoch);

  // The job ends; the next one with its id begins at once, with nothing.
  std::optional<bool> gone;
  fourth.journal->release([&](bool are_keys_gone) { gone = are_keys_gone; });
  loop.until([&] { return gone.has_value(); }, "the release");
  CHECK(*gone);
  EtcdCandidate next(loop, etcd.settings(), rival_of(config));
  next.claimed();
  CHECK(next.claim->content.empty());
  CHECK(next.lost.empty());
}

TEST_CASE("etcd journal: a leader lives through the loss of each member, also of etcd's leader",
          "[etcd][integration]") {
  const EtcdCluster etcd({"--members", "3"});
  EtcdLoop loop;
  LeaseConfig config = lease_of_own_job();
  config.leader_ttl = 10s;
  EtcdCandidate leader(loop, etcd.settings(1s), config);
  leader.claimed();
  const std::string epoch = leader.claim->epoch;
  int value = 0;
  const auto keep_some = [&] {
    for (int i = 0; i < 3; ++i) leader.keep(std::to_string(++value));
  };
  keep_some();
  for (const char* way : {"kill ", "freeze "}) {
    const std::string etcds_leader = std::to_string(etcd.leader());
    etcd(way + etcds_leader);
    keep_some();
    etcd((way == std::string("kill ") ? "start " : "thaw ") + etcds_leader);
    keep_some();
  }
  // Without a majority nothing is kept, and nothing is lost.
  loop.until([&] { return leader.doubts == leader.sure; }, "that it is sure");
  const int doubts = leader.doubts;
  etcd("freeze 1");
  etcd("freeze 2");
  leader.journal->write(++leader.written, std::to_string(++value));
  loop.until([&] { return leader.doubts > doubts; }, "doubt");
  CHECK_FALSE(leader.journal->may_tell());
  CHECK(leader.kept < leader.written);
  etcd("thaw 1");
  etcd("thaw 2");
  loop.until([&] { return leader.kept == leader.written || !leader.lost.empty(); }, leader.words());
  // Its key was there all the time, by the grace of etcd's new leader; had it not been, it would know.
  if (leader.lost.empty()) {
    loop.until([&] { return leader.journal->may_tell(); }, leader.words());
    CHECK(leader.claim->epoch == epoch);
  } else {
    CHECK_THAT(leader.lost, Contains("its lease in etcd has ended") || Contains("is gone"));
  }
}

TEST_CASE("etcd journal: a full etcd is named in words, and writes go on once there is room", "[etcd][integration]") {
  const EtcdCluster etcd({"--quota", "4194304"});
  EtcdLoop loop;
  EtcdCandidate leader(loop, etcd.settings(), lease_of_own_job());
  leader.claimed();
  leader.keep("one");
  etcd("fill");
  leader.journal->write(++leader.written, "two");
  loop.until([&] { return count(leader.words(), "its quota is used up") > 0; }, "trouble");
  CHECK_THAT(leader.words(), Contains("alarm disarm"));
  EtcdCandidate other(loop, etcd.settings(), lease_of_own_job());
  loop.until([&] { return !other.lost.empty(); }, "that a new job is refused");
  CHECK_THAT(other.lost, Contains("its quota is used up"));
  CHECK(leader.lost.empty());
  etcd("empty");
  loop.until([&] { return leader.kept == leader.written; }, leader.words());
  CHECK(leader.lost.empty());
}

TEST_CASE("etcd journal: a record that etcd would not take is refused before it is sent", "[etcd][integration]") {
  const EtcdCluster etcd = EtcdCluster::shared();
  EtcdLoop loop;
  EtcdCandidate leader(loop, etcd.settings(), lease_of_own_job());
  leader.claimed();
  leader.journal->write(++leader.written, std::string(kMostContentBytes + 1, 'x'));
  loop.until([&] { return !leader.lost.empty(); }, "a refusal");
  CHECK_THAT(leader.lost, Contains("does not fit into etcd"));
}

// Prints figures: etcd_integration_tests "[figures]"
TEST_CASE("etcd journal: what a write and each leader change take", "[.][figures]") {
  using Clock = std::chrono::steady_clock;
  const auto ms = [](Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); };
  for (const char* members : {"1", "3"}) {
    const EtcdCluster etcd({"--members", members});
    EtcdLoop loop;
    LeaseConfig config = lease_of_own_job();
    std::vector<double> writes, revokes, ends;
    for (int i = 0; i < 5; ++i) {
      EtcdCandidate first(loop, etcd.settings(), rival_of(config));
      first.claimed();
      for (int n = 0; n < 100; ++n) {
        const auto begin = Clock::now();
        first.keep(std::string(10000, 'x'));
        writes.push_back(ms(Clock::now() - begin));
      }
      EtcdCandidate second(loop, etcd.settings(), rival_of(config));
      loop.until([&] { return !second.other.empty(); }, "its note");
      EtcdClient client(loop.io, etcd.settings());
      loop.ask(client, ReadKey{"/a"});
      const LeaseId lease = first.journal->inheritance().lease;
      first.journal.reset();
      auto begin = Clock::now();
      loop.ask(client, RevokeLease{lease});
      second.claimed();
      revokes.push_back(ms(Clock::now() - begin));
      EtcdCandidate third(loop, etcd.settings(), rival_of(config));
      loop.until([&] { return !third.other.empty(); }, "its note");
      begin = Clock::now();
      second.journal.reset();
      third.claimed();
      ends.push_back(ms(Clock::now() - begin));
      bool is_over = false;
      third.journal->release([&](bool) { is_over = true; });
      loop.until([&] { return is_over; }, "the release");
    }
    for (auto* figures : {&writes, &revokes, &ends}) std::sort(figures->begin(), figures->end());
    WARN(members << " member(s): a write of 10 kB " << writes[writes.size() / 2] << " ms (p99 "
                 << writes[writes.size() * 99 / 100] << "), leader change by revoke " << revokes[2]
                 << " ms, by TTL of 5 s " << ends[2] << " ms");
  }
}

// Returns the processor time that a process has used, and etcd's number of writes of all kinds.
double seconds_used(const std::string& pid) {
  std::istringstream stat(read_file("/proc/" + pid + "/stat"));
  std::string field;
  double ticks = 0;
  for (int i = 1; i <= 15 && stat >> field; ++i) ticks += i >= 14 ? std::stod(field) : 0;  // utime and stime
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}
long writes_of(const EtcdCluster& etcd) {
  const std::string status = etcd("ctl endpoint", {"status", "-w", "fields"}), word = "\"RaftIndex\" : ";
  return std::stol(status.substr(status.find(word) + word.size()));
}

// Prints figures: DDPRUN_NODES=1000 etcd_integration_tests "etcd journal: what the nodes*"
TEST_CASE("etcd journal: what the nodes of a large job cost etcd", "[.][figures]") {
  const int nodes = number_from("DDPRUN_NODES", 1000);
  constexpr std::chrono::seconds kMinute{60};
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  const EtcdCluster etcd({"--members", "1"});
  const std::string pid = read_file(etcd.file("pids/m1")), etcds = pid.substr(0, pid.find('\n'));
  EtcdLoop loop;
  const LeaseConfig config = lease_of_own_job();
  EtcdCandidate leader(loop, etcd.settings(), rival_of(config));
  leader.claimed();
  leader.keep(std::string(10000, 'x'));
  std::deque<EtcdCandidate> others;
  for (int i = 1; i < nodes; ++i) {
    EtcdCandidate& other = others.emplace_back(loop, etcd.settings(), rival_of(config));
    if (i % 50 == 0) loop.until([&] { return !other.other.empty(); }, "its note");
  }
  loop.until([&] { return std::all_of(others.begin(), others.end(), [](const auto& o) { return !o.other.empty(); }); },
             "the notes of all");
  const double used = seconds_used(etcds);
  const long writes = writes_of(etcd);
  bool is_over = false;
  asio::steady_timer timer(loop.io, kMinute);
  timer.async_wait([&](const auto&) { is_over = true; });
  while (!is_over) loop.io.run_one();
  WARN(nodes << " nodes: etcd used " << (seconds_used(etcds) - used) / kMinute.count() * 100
             << " % of a core and wrote " << writes_of(etcd) - writes << " times in " << kMinute.count() << " s");
  CHECK(leader.lost.empty());
}

}  // namespace
