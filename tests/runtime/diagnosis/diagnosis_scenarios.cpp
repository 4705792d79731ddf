// SPDX-License-Identifier: BSD-3-Clause
// Scenarios with ranks that disagree, and what they learn: DDP_DEBUG=detail, monitored barriers, the flight recorder.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/runtime/job/scenario.hpp"

namespace ddp::test {
namespace {

constexpr ddp::Milliseconds kShort(300), kLong(120'000);

// Does nothing until these ranks have reported that they are done.
void stay_until_done(const ddp::Session& session, const std::vector<int>& ranks) {
  std::vector<std::string> keys;
  for (const int rank : ranks) keys.push_back("done/" + std::to_string(rank));
  session.store().wait(keys, kLong);
}
void done(const ddp::Session& session) { session.store().set("done/" + std::to_string(session.rank()), ""); }

std::vector<int> ranks_before(int last, int step = 1) {
  std::vector<int> ranks;
  for (int rank = 0; rank < last; rank += step) ranks.push_back(rank);
  return ranks;
}

void different_operations(ddp::Session& session) {
  std::vector<float> values(10);
  report_failure("call", [&] {
    if (session.rank() == 1) session.world().barrier();
    if (session.rank() != 1) session.world().all_reduce(values);
  });
}

void different_types(ddp::Session& session) {
  std::vector<float> floats(10);
  std::vector<std::int32_t> integers(10);
  report_failure("call", [&] {
    if (session.rank() == 1) session.world().all_reduce(integers);
    if (session.rank() != 1) session.world().all_reduce(floats);
  });
}

void different_reductions(ddp::Session& session) {
  std::vector<float> values(10);
  report_failure(
      "call", [&] { session.world().reduce(values, session.rank() == 1 ? ddp::ReduceOp::Max : ddp::ReduceOp::Sum); });
}

void different_roots(ddp::Session& session) {
  std::vector<float> values(10);
  report_failure("call", [&] { session.world().broadcast(values, session.rank() == 1 ? 1 : 0); });
}

void different_objects(ddp::Session& session) {
  report_failure("call", [&] {
    if (session.rank() == 1) session.world().gather_object("x", 1);
    if (session.rank() != 1) session.world().broadcast_object("x");
  });
}

void different_turns(ddp::Session& session) {
  std::vector<float> values(10);
  if (session.rank() == 1) {
    report_failure("barrier", [&] { session.world().monitored_barrier(kShort); });
  } else {
    report_failure("call", [&] { session.world().all_reduce(values, ddp::ReduceOp::Sum, kShort); });
  }
}

// The last rank does not take part in the second operation.
void missing(ddp::Session& session) {
  std::vector<float> values(10);
  session.world().barrier();
  if (session.rank() == session.world_size() - 1) return stay_until_done(session, ranks_before(session.rank()));
  report_failure("call", [&] { session.world().all_reduce(values, ddp::ReduceOp::Sum, kShort); });
  done(session);
}

// The last rank does not take part at all.
void idle(ddp::Session& session) {
  if (session.rank() == session.world_size() - 1) return stay_until_done(session, ranks_before(session.rank()));
  report_failure("call", [&] { session.world().barrier(kShort); });
  done(session);
}

void left(ddp::Session& session) {
  session.world().barrier();
  if (session.rank() == session.world_size() - 1) return;
  report_failure("call", [&] { session.world().barrier(kLong); });
}

void no_message(ddp::Session& session) {
  std::vector<float> first(10);
  if (session.rank() == 0) session.world().send(first, 1);
  if (session.rank() == 1) session.world().recv(first, 0);
  session.world().barrier();
  if (session.rank() == 1) return stay_until_done(session, {0});
  std::vector<float> values(10);
  report_failure("call", [&] { session.world().recv(values, 1, 0, kShort); });
  done(session);
}

void monitored(ddp::Session& session) {
  const ddp::ProcessGroup group = session.world();
  for (int i = 0; i < 5; ++i) {
    std::vector<float> values = {1};
    const ddp::Work work = group.all_reduce_async(values);
    group.monitored_barrier(kDefaultTimeout, i % 2 == 0);
    expect(work.is_completed(), "what was before a monitored barrier has ended");
  }
  session.store().add("came", 1);
  group.monitored_barrier();
  expect(session.store().add("came", 0) == group.size(), "nobody passes before all have come");
}

// The odd ranks do not come. One of the others waits longer.
void monitored_missing(ddp::Session& session, bool all) {
  if (session.rank() % 2 == 1) return stay_until_done(session, ranks_before(session.world_size(), 2));
  const auto before = std::chrono::steady_clock::now();
  report_failure("call", [&] { session.world().monitored_barrier(session.rank() == 0 ? kLong : kShort, all); });
  expect(std::chrono::steady_clock::now() - before < kShort + std::chrono::seconds(4), "soon after the first deadline");
  report_failure("next", [&] { session.world().barrier(); });
  done(session);
}

// Ranks 0 and 2 wait in the barrier when rank 0's group fails for another reason.
void monitored_failure(ddp::Session& session) {
  if (session.rank() == 1) return stay_until_done(session, {0, 2});
  std::thread other;
  if (session.rank() == 0) {
    other = std::thread([&] {
      std::vector<float> values(10);
      report_failure("recv", [&] { session.world().recv(values, 1, 0, kShort); });
    });
  }
  const auto before = std::chrono::steady_clock::now();
  report_failure("call", [&] { session.world().monitored_barrier(kLong); });
  expect(std::chrono::steady_clock::now() - before < kLong / 2, "a rank that waits in the barrier learns of it");
  if (other.joinable()) other.join();
  done(session);
}

// Does what makes Gloo end the process.
void size_mismatch_unchecked(ddp::Session& session) {
  std::vector<float> values(1024);
  report_failure("call", [&] {
    session.world().all_reduce({values.data(), session.rank() == 0 ? values.size() : values.size() / 2});
  });
}

// $DUMP names the folder.
void dump(ddp::Session& session) {
  std::vector<float> values(10);
  session.world().all_reduce(values);
  session.world().barrier();
  const std::string path = std::string(std::getenv("DUMP")) + "/dump" + std::to_string(session.rank()) + ".json";
  ddp::dump_flight_recorder(path);
  report_failure("dump", [] { ddp::dump_flight_recorder("/proc/no/file"); });
}

}  // namespace

Scenarios diagnosis_scenarios() {
  return {
      {"different operations", different_operations},
      {"different types", different_types},
      {"different reductions", different_reductions},
      {"different roots", different_roots},
      {"different objects", different_objects},
      {"different turns", different_turns},
      {"missing", missing},
      {"idle", idle},
      {"left", left},
      {"no message", no_message},
      {"monitored", monitored},
      {"monitored, some missing", [](ddp::Session& s) { monitored_missing(s, false); }},
      {"monitored, all that are missing", [](ddp::Session& s) { monitored_missing(s, true); }},
      {"monitored, another failure", monitored_failure},
      {"size mismatch, unchecked", size_mismatch_unchecked},
      {"dump", dump},
  };
}

}  // namespace ddp::test
