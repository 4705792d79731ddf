// SPDX-License-Identifier: BSD-3-Clause
// Scenarios with messages between two ranks.
#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tests/runtime/job/scenario.hpp"

namespace ddp::test {
namespace {

// A number travels through all ranks; each adds to it.
void ring(const ddp::ProcessGroup& group) {
  const int n = group.size();
  const int next = (group.rank() + 1) % n;
  const int previous = (group.rank() + n - 1) % n;
  std::vector<std::int64_t> number = {0};
  if (group.rank() == 0) {
    group.send(number, next);
    expect(group.recv(number, previous) == previous, "recv tells the sender");
    expect(number[0] == n - 1, "every rank has raised the number");
  } else {
    group.recv(number, previous);
    ++number[0];
    group.send(number, next);
  }
}

// Each rank has 3 messages of 3 tags in flight to every other one, received in another order than sent.
void many_in_flight(const ddp::ProcessGroup& group) {
  struct Letter {
    std::vector<int> text;
    ddp::Work work;
    int peer;
  };
  std::vector<Letter> sent;
  std::vector<Letter> received;
  sent.reserve(1000);
  received.reserve(1000);
  for (int peer = 0; peer < group.size(); ++peer) {
    if (peer == group.rank()) continue;
    for (std::uint32_t tag = 0; tag < 3; ++tag) {
      for (int i = 0; i < 3; ++i) {
        Letter& out =
            sent.emplace_back(Letter{std::vector<int>(100, group.rank() * 100 + int(tag) * 10 + i), {}, peer});
        out.work = group.isend(out.text, peer, tag);
        Letter& in = received.emplace_back(Letter{std::vector<int>(100), {}, peer});
        in.work = group.irecv(in.text, peer, 2 - tag);
      }
    }
  }
  for (std::size_t k = received.size(); k-- > 0;) {
    const int expected = received[k].peer * 100 + (2 - static_cast<int>(k / 3) % 3) * 10 + static_cast<int>(k) % 3;
    if (k % 2 == 0) {
      while (!received[k].work.is_completed()) {
      }
    }
    expect(received[k].work.wait_source() == received[k].peer, "who sent it");
    expect(received[k].text == std::vector<int>(100, expected), "messages of one tag arrive in order");
    received[k].work.wait();  // a second wait is harmless
  }
  for (Letter& letter : sent) letter.work.wait();
}

void from_anyone(const ddp::ProcessGroup& group) {
  std::vector<std::uint16_t> values = {static_cast<std::uint16_t>(group.rank())};
  if (group.rank() != 0) return group.send(values, 0, 77);
  std::set<int> senders;
  for (int i = 1; i < group.size(); ++i) {
    const int sender = group.recv(values, ddp::kAnyRank, 77);
    expect(values[0] == sender, "the sender is the one whose message it is");
    senders.insert(sender);
  }
  expect(senders.size() == static_cast<std::size_t>(group.size() - 1), "a message of everybody");
}

// Both ranks of a pair send 16 MB first and receive then, while a reduction of all ranks is under way.
void large_both_ways(const ddp::ProcessGroup& group) {
  const int peer = group.rank() ^ 1;
  std::vector<float> sum(1'000'000, 1.0F);
  const ddp::Work reduction = group.all_reduce_async(sum);
  if (peer < group.size()) {
    std::vector<double> mine(2'000'000, group.rank());
    std::vector<double> theirs(mine.size());
    const ddp::Work sending = group.isend(mine, peer);
    group.recv(theirs, peer);
    sending.wait();
    expect(theirs == std::vector<double>(mine.size(), peer), "a large message arrives whole");
  }
  reduction.wait();
  expect(sum.back() == static_cast<float>(group.size()), "the reduction beside it");
}

// A message that does not fit under way arrives while its receiver is in a collective, and has posted the receive.
void large_beside_barrier(const ddp::ProcessGroup& group) {
  const int n = group.size(), next = (group.rank() + 1) % n, previous = (group.rank() + n - 1) % n;
  std::vector<double> mine(1'000'000, group.rank()), theirs(mine.size());
  const ddp::Work receiving = group.irecv(theirs, previous, 8);
  if (group.rank() == 0) group.send(mine, next, 8);
  group.barrier();
  if (group.rank() != 0) group.send(mine, next, 8);
  receiving.wait();
  expect(theirs == std::vector<double>(mine.size(), previous), "a large message beside a barrier");
}

void messages(ddp::Session& session) {
  const ddp::ProcessGroup group = session.world();
  ring(group);
  many_in_flight(group);
  from_anyone(group);
  large_both_ways(group);
  large_beside_barrier(group);
  std::vector<float> nothing;
  if (group.rank() == 0) group.send(nothing, 1);
  if (group.rank() == 1) expect(group.recv(nothing) == 0, "a message of no elements");
  static std::vector<float> values(4);  // the last message may leave it after this function has returned
  report_failure("to self", [&] { group.send(values, group.rank()); });
  report_failure("to nobody", [&] { static_cast<void>(group.isend(values, group.size())); });
  report_failure("from nobody", [&] { group.recv(values, -2); });
  static ddp::Work last;  // this test does not wait for it; the end of the session does
  if (group.rank() == 0) last = group.isend(values, 1, 9);
  if (group.rank() == 1) group.recv(values, 0, 9);
}

// The session ends with receives of which no message ever comes. With Gloo and DDP_DEBUG=detail a thread waits for the
// second one.
void left_pending(ddp::Session& session) {
  static std::vector<float> values(8);
  static std::vector<ddp::Work> works;  // outlive the session
  const ddp::ProcessGroup group = session.world();
  works.push_back(group.irecv({values.data(), 4}, 1 - group.rank(), 1));
  works.push_back(group.irecv({values.data() + 4, 4}, 1 - group.rank(), 2));
  expect(!works.back().wait_for(ddp::Milliseconds(1)), "nothing has come");
  group.barrier();
}

// A work that is dropped lets go of its memory: it waits, but for a receive, whose message is thrown away when it
// comes.
void dropped(ddp::Session& session) {
  const ddp::ProcessGroup group = session.world();
  constexpr std::size_t kBytes = 4 << 20;  // more than is under way at once
  std::vector<char> first(kBytes, 'a'), second(kBytes, 'b'), got(kBytes);
  if (group.rank() == 0) {
    group.barrier();
    const ddp::Work sent = group.isend(first, 1, 5);
    static_cast<void>(group.isend(second, 1, 5));
    std::fill(second.begin(), second.end(), '-');  // it is not needed any more
    sent.wait();
  } else {
    static_cast<void>(group.irecv(got, 0, 5));
    std::fill(got.begin(), got.end(), '-');
    group.barrier();
    std::vector<char> next(kBytes);
    group.recv(next, 0, 5);
    expect(next == std::vector<char>(kBytes, 'b'), "the next receive has the next message");
    expect(got == std::vector<char>(kBytes, '-'), "what was dropped is not written");
  }
  const int other = 1 - group.rank();
  const ddp::Work kept = group.irecv(got, other, 6);
  { const ddp::Work copy = kept; }  // not the last one
  static_cast<void>(group.irecv(second, ddp::kAnyRank, 7));
  group.send(first, other, 7);
  group.send(first, other, 6);
  kept.wait();
  expect(got == first, "a copy that is dropped leaves the operation to the others");
  session.destroy();
  report_failure("after the session", [&] { kept.wait(); });
  report_failure("a view after the session", [&] { group.barrier(); });
}

void alone(ddp::Session& session) {
  std::vector<float> values(4);
  report_failure("send", [&] { session.world().send(values, 0); });
  report_failure("recv", [&] { session.world().recv(values); });
}

// Rank 1 never sends.
void unanswered(ddp::Session& session) {
  const ddp::ProcessGroup group = session.world();
  std::vector<float> values(10);
  if (group.rank() == 1) {
    session.store().get("done");
    return;
  }
  const ddp::Work late = group.irecv(values, 1, 3);
  const ddp::Work from_anyone = group.irecv(values, ddp::kAnyRank, 6);
  expect(!late.is_completed(), "nothing has come");
  expect(!late.exception(), "nor has it failed");
  report_failure("recv", [&] { group.recv(values, 1, 4, ddp::Milliseconds(300)); });
  report_failure("the other", [&] { late.wait(); });
  report_failure("the third", [&] { from_anyone.wait(); });
  expect(late.is_completed() && late.exception(), "a failed one has completed");
  report_failure("barrier", [&] { group.barrier(); });
  session.store().set("done", "");
}

// Rank 1 is killed while rank 0 waits for its message.
void lose_sender(ddp::Session& session) {
  const ddp::ProcessGroup group = session.world();
  std::vector<float> values(10);
  group.barrier();
  say("ready");
  if (group.rank() == 1) session.store().get("never");
  report_failure("recv", [&] { group.recv(values, 1, 5); });
}

// The two sides of a message disagree.
// A small send may have ended when its receiver gives up; then the sender's next operation fails.
void message_mismatch(ddp::Session& session) {
  const ddp::ProcessGroup group = session.world();
  std::vector<float> ten(10);
  std::vector<std::int32_t> five(5);
  if (group.rank() == 0) {
    report_failure("send or barrier", [&] {
      group.send(ten, 1, 4);
      group.barrier();
    });
  }
  if (group.rank() == 1) report_failure("recv", [&] { group.recv(five, ddp::kAnyRank, 4); });
}

// A thread waits for a message from any rank when the group fails.
void abort_while_waiting(ddp::Session& session) {
  const ddp::ProcessGroup group = session.world();
  if (group.rank() == 1) {
    session.store().get("done");
    return;
  }
  std::vector<float> values(10);
  const ddp::Work from_anyone = group.irecv(values);
  // With Gloo, from now on a thread waits for it.
  expect(!from_anyone.wait_for(ddp::Milliseconds(1)), "nothing has come");
  report_failure("recv", [&] { group.with_timeout(ddp::Milliseconds(300)).recv(values, 1, 4); });
  report_failure("from anyone", [&] { from_anyone.wait(); });
  session.store().set("done", "");
}

}  // namespace

Scenarios message_scenarios() {
  return {{"messages", messages},         {"messages alone", alone},
          {"dropped", dropped},           {"unanswered", unanswered},
          {"lose sender", lose_sender},   {"message mismatch", message_mismatch},
          {"left pending", left_pending}, {"abort while waiting", abort_while_waiting}};
}

}  // namespace ddp::test
