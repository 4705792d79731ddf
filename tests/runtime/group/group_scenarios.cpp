// SPDX-License-Identifier: BSD-3-Clause
// Scenarios with groups of some of the ranks.
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "tests/runtime/job/scenario.hpp"
#include "tests/support/environment.hpp"

namespace ddp::test {
namespace {

// Checks the sum of the members' contributions: their ranks in the job, and 1 each.
void expect_sum(const ddp::ProcessGroup& group, const std::vector<int>& members, const std::string& what) {
  const auto sum = [&] {
    std::vector<int> values = {get_rank(), 1};
    group.all_reduce(values);
    return values;
  }();
  expect(sum[0] == std::accumulate(members.begin(), members.end(), 0), what + ": the members' sum");
  expect(sum[1] == static_cast<int>(members.size()), what + ": every member is in it");
}

void expect_members(const ddp::ProcessGroup& group, const std::vector<int>& members, const std::string& what) {
  expect(group.size() == static_cast<int>(members.size()), what + ": its size");
  for (std::size_t r = 0; r < members.size(); ++r) {
    expect(group.global_rank(static_cast<int>(r)) == members[r], what + ": rank " + std::to_string(r));
    expect(group.group_rank(members[r]) == static_cast<int>(r), what + ": the rank of " + std::to_string(members[r]));
  }
  expect(group.global_rank(group.rank()) == get_rank(), what + ": this rank");
}

// With 4 ranks.
void new_groups(ddp::Session& session) {
  const int rank = session.rank();
  const std::vector<int> even = {0, 2};
  const std::vector<int> odd = {1, 3};
  const std::vector<int>& mine = rank % 2 == 0 ? even : odd;
  const ddp::ProcessGroup half = session.new_group({mine[1], mine[0]});  // any order
  expect_members(half, mine, "half");
  expect_sum(half, mine, "half");
  expect(half.name() == (rank % 2 == 0 ? "ranks 0, 2" : "ranks 1, 3"), "half is called by its members");
  expect(half.backend() == "ddp" && get_backend(half) == "ddp", "half's backend is the session's");
  expect(half.group_rank(mine[0] ^ 1) == -1, "the others are no members");
  report_failure("no such rank", [&] { static_cast<void>(half.global_rank(2)); });

  const ddp::ProcessGroup again = session.new_group(mine);
  expect(again.name() == half.name() + " (2)", "a second group of the same members has a name of its own");
  expect_sum(again, mine, "again");
  expect_sum(half, mine, "half beside another of the same members");

  ddp::GroupOptions options;
  options.name = "three";
  const ddp::ProcessGroup three = session.new_group({0, 1, 2}, options);
  expect(static_cast<bool>(three) == (rank < 3), "members have a group, others have none");
  if (rank == 3) {
    expect(three.rank() == -1 && get_rank(three) == -1 && get_world_size(three) == -1, "and no rank in it");
    expect(three.name().empty() && three.backend().empty(), "nor a name for it");
    report_failure("a group of others", [&] { three.barrier(); });
  } else {
    expect(three.name() == "three", "a name that was given");
    expect_sum(three, {0, 1, 2}, "three");
  }
  expect(!session.new_group({}), "nobody is in an empty group");

  const ddp::ProcessGroup alone = session.new_group({rank});
  expect_sum(alone, {rank}, "alone");
  expect_sum(session.world(), {0, 1, 2, 3}, "the world beside its groups");
}

// With 4 ranks.
void split(ddp::Session& session) {
  const ddp::ProcessGroup world = session.world();
  const int rank = session.rank();
  // In reverse order: the key decides.
  const ddp::ProcessGroup backwards = world.split(7, -rank);
  expect_members(backwards, {3, 2, 1, 0}, "backwards");
  expect_sum(backwards, {0, 1, 2, 3}, "backwards");
  // Halves, then halves of those, whose parent is not in the world's order.
  const ddp::ProcessGroup half = backwards.split(rank / 2);
  expect_members(half, rank < 2 ? std::vector<int>{1, 0} : std::vector<int>{3, 2}, "half");
  expect_sum(half, rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3}, "half");
  const ddp::ProcessGroup one = half.split(rank);
  expect_members(one, {rank}, "one");
  expect(half.name() == "world split 0/7 split 0/" + std::to_string(rank / 2), "its name says where it comes from");
  // Some ranks take part in no group. Both sides of a split may use the same name.
  ddp::GroupOptions options;
  options.name = "pair";
  const ddp::ProcessGroup pair = world.split(rank == 1 ? ddp::kNoColor : rank % 3, 0, options);
  expect(static_cast<bool>(pair) == (rank != 1), "no color is no group");
  if (pair) {
    expect(pair.name() == "pair", "a name that was given");
    expect_sum(pair, rank == 2 ? std::vector<int>{2} : std::vector<int>{0, 3}, "pair");
  }
  expect_sum(world, {0, 1, 2, 3}, "the world beside its groups");
}

// A group that waits must not delay another: rank 0's first operation needs what rank 1 does last.
void crossed(ddp::Session& session) {
  ddp::GroupOptions options;
  options.timeout = std::chrono::seconds(30);  // only a hang takes that long
  const ddp::ProcessGroup first = session.new_group({0, 1}, options);
  const ddp::ProcessGroup second = session.new_group({0, 1}, options);
  std::vector<float> a = {1};
  std::vector<float> b = {2};
  if (session.rank() == 0) {
    const ddp::Work blocked = first.all_reduce_async(a);
    second.all_reduce_async(b).wait();
    blocked.wait();
  } else {
    second.all_reduce_async(b).wait();
    first.all_reduce_async(a).wait();
  }
  expect(a[0] == 2 && b[0] == 4, "both operations ended well");
}

void mistakes(ddp::Session& session) {
  report_failure("twice", [&] { session.new_group({0, 1, 1}); });
  report_failure("too high", [&] { session.new_group({0, session.world_size()}); });
  report_failure("negative", [&] { session.new_group({-1}); });
  ddp::GroupOptions options;
  options.name = "a/b";
  report_failure("slash", [&] { session.new_group({session.rank()}, options); });
  options.name = "world";
  report_failure("the world's name", [&] { session.new_group({session.rank()}, options); });
  options.name = "mine";
  ddp::ProcessGroup mine = session.new_group({session.rank()}, options);
  report_failure("name again", [&] { session.new_group({session.rank()}, options); });
  ddp::ProcessGroup world = session.world();
  report_failure("end of the world", [&] { world.destroy(); });
  const ddp::ProcessGroup copy = mine;
  mine.destroy();
  expect(!mine, "a destroyed group is empty");
  report_failure("a group that is gone", [&] { copy.split(0); });
  options.name = "other backend";
  options.backend = "nosuch";
  report_failure("backend", [&] { session.new_group({0, 1}, options); });
  session.world().barrier();
}

void destroy(ddp::Session& session) {
  for (int round = 0; round < 5; ++round) {
    ddp::ProcessGroup group = session.new_group({0, 1});
    std::vector<float> values = {1};
    const ddp::Work work = group.all_reduce_async(values);
    group.destroy();  // waits for it
    expect(values[0] == 2, "operations in flight have ended");
  }
  session.world().barrier();
}

// Rank 0 leaves groups of all ranks until leaving one has taken less than two of the 10 ms rounds of Gloo's event loop.
// Without the timer that wakes the loop, leaving waits for a round per connection, and the time runs out.
void leave(ddp::Session& session) {
  using Clock = std::chrono::steady_clock;
  std::vector<int> all(static_cast<std::size_t>(session.world_size()));
  std::iota(all.begin(), all.end(), 0);
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(60);
  std::vector<int> enough = {0};
  while (enough[0] == 0) {
    ddp::ProcessGroup group = session.new_group(all);
    session.world().barrier();
    const Clock::time_point before = Clock::now();
    if (session.rank() == 0) {
      group.destroy();
      const bool was_soon = Clock::now() - before < std::chrono::milliseconds(20);
      expect(was_soon || before < deadline, "a group is left at once");
      enough[0] = was_soon || before >= deadline ? 1 : 0;
    }
    session.world().broadcast(enough, 0);
    if (group) group.destroy();
  }
}

// Rank 2 comes after the others have given up.
void late(ddp::Session& session) {
  if (session.rank() == 2) session.store().wait({"given up/0", "given up/1"});
  report_failure("three", [&] { session.new_group({0, 1, 2}); });
  session.store().set("given up/" + std::to_string(session.rank()), "");
  session.store().wait({"given up/0", "given up/1", "given up/2"});
  expect_sum(session.new_group({0, 1, 2}), {0, 1, 2}, "the next of the same members");
}

// Rank 1 gives another list under the same name. Rank 2 comes after that is known.
void disagree(ddp::Session& session) {
  const int rank = session.rank();
  ddp::GroupOptions options;
  options.name = "eval";
  const std::vector<int> members = rank == 1 ? std::vector<int>{1, 2} : std::vector<int>{0, 2};
  if (rank == 2) session.store().wait({"refused"});
  report_failure("eval", [&] { session.new_group(members, options); });
  if (rank == 1) session.store().set("refused", "");
}

// Each rank asks for another backend: for a group, and for the world of a second session.
void other_backends(ddp::Session& session) {
  const char* backend = session.rank() == 0 ? "gloo" : "ddp";
  report_failure("group", [&] { session.new_group({0, 1}, {.name = "eval", .backend = backend}); });
  report_failure("session", [&] {
    ddp::init_process_group({.backend = backend, .init_timeout = ddp::Milliseconds(500), .name = "second"});
  });
}

void default_session(ddp::Session& session) {
  expect(is_initialized() && default_group().c() == session.world().c(), "the first session is the default");
  expect(get_rank() == session.rank() && get_world_size() == session.world_size(), "its world is the default group");
  expect(get_backend() == "ddp", "with its backend");
  ddp::Session second = ddp::init_process_group();
  expect(default_group().c() == session.world().c(), "a second one does not change that");
  session.world().barrier();
  session.destroy();
  expect(default_group().c() == second.world().c(), "until the first ends");
  second.destroy();
  expect(!is_initialized(), "then there is none");
  report_failure("get_rank", [] { get_rank(); });
  report_failure("get_world_size", [] { get_world_size(); });
  report_failure("get_backend", [] { static_cast<void>(get_backend()); });
}

// The test kills rank 2 while the others wait for it to form a group.
void lose_member(ddp::Session& session) {
  const int rank = session.rank();
  session.world().barrier();
  say("ready");
  if (rank == 2) {
    for (;;) pause();
  }
  report_failure("forming", [&] { session.new_group({0, 1, 2}); });
  report_failure("forming again", [&] { session.new_group({0, 1, 2}); });
  expect_sum(session.new_group({0, 1}), {0, 1}, "the survivors");
}

// The test kills rank 3. The groups that have it fail; the others continue.
void lose_rank_3(ddp::Session& session) {
  const int rank = session.rank();
  const std::vector<int> left = {0, 1};
  const std::vector<int> right = {2, 3};
  const ddp::ProcessGroup half = session.new_group(rank < 2 ? left : right);
  session.world().barrier();
  say("ready");
  if (rank == 3) {
    for (;;) pause();
  }
  // Rank 0 waits in the world for a rank that lives, so no connection that it waits on ever breaks.
  std::vector<float> values = {1};
  if (rank == 0) report_failure("world", [&] { session.world().recv(values, 1); });
  if (rank == 1) report_failure("world", [&] { session.world().barrier(); });
  if (rank == 2) report_failure("half", [&] { half.barrier(); });
  if (rank == 2) report_failure("world", [&] { session.world().barrier(); });
  if (rank < 2) expect_sum(half, left, "the half that is whole");
}

// With any number of ranks.
void shared_memory(ddp::Session& session) {
  const int rank = session.rank(), size = session.world_size();
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  for (const char* backend : {"gloo", "ddp"}) {
    ddp::GroupOptions options;
    options.name = std::string("memory of ") + backend;
    options.backend = backend;
    const ddp::ProcessGroup group = session.new_group(all, options);
    constexpr std::size_t kCount = 100'000;
    const ddp::GroupMemory<float> sums = group.allocate<float>(kCount);
    std::vector<float> own(kCount);
    expect(std::count(sums.get(), sums.get() + kCount, 0.0F) == kCount, "the memory is zeros at first");
    for (std::size_t i = 0; i < kCount; ++i)
      sums[i] = own[i] = 0.1F * static_cast<float>(i % 97) + static_cast<float>(rank);
    group.all_reduce({sums.get(), kCount}, ReduceOp::Avg);
    group.all_reduce(own, ReduceOp::Avg);
    expect(std::equal(own.begin(), own.end(), sums.get()), options.name + ": the bits are those of other memory");
    const ddp::GroupMemory<char> none = group.allocate<char>(0);
    report_failure("too much memory", [&] { static_cast<void>(group.allocate<double>(~std::size_t{0} / 2)); });
    group.barrier();
  }
}

// A child of fork() leaves the scope of all that its parent has made. That ends nothing of the parent's, and the child
// cannot use the groups.
void fork_with_all(ddp::Session& session) {
  const ddp::ProcessGroup world = session.world();
  const std::string folder = ddp::testing::variable("TEST_FOLDER");
  const std::string path = folder + "/store" + std::to_string(session.rank());
  std::vector<float> values(1000, 1.0F), gradients(1000), letter(1);
  std::optional<ddp::FileStore> store(std::in_place, path, 1);
  std::optional<ddp::CheckpointFolder> checkpoints(std::in_place, world, folder);
  checkpoints->save_async(1, {}).wait();  // starts a thread
  const std::vector<ddp::Parameter> parameters = {{"w", values.data(), gradients.data(), values.size()}};
  std::optional<ddp::DistributedDataParallel> model(std::in_place, world, parameters);
  std::optional<ddp::Work> reduction = world.all_reduce_async(values);
  std::optional<ddp::Work> receive = world.irecv(letter);
  std::optional<ddp::GroupMemory<float>> memory = world.allocate<float>(1000);
  model->mark_ready(0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a child that hangs is a failure
    report_failure("an operation of a child", [&] { world.barrier(); });
    report_failure("a wait of a child", [&] { reduction->wait(); });
    expect(!ddp::is_initialized(), "a child has no session");
    memory.reset();
    receive.reset();
    reduction.reset();
    model.reset();
    checkpoints.reset();
    store.reset();
    session.destroy();
    ddp::InitOptions alone;
    alone.world_size = 1;
    const ddp::Session own = ddp::init_process_group(alone);
    own.world().barrier();
    std::_Exit(all_right ? 0 : 1);
  }
  int status = -1;
  expect(waitpid(child, &status, 0) == child && status == 0, "a child leaves everything");
  store->set("still", "there");
  expect(ddp::FileStore(path, 1).get("still") == "there", "the store's file is there");
  reduction.reset();
  model->synchronize();
  world.send(values[0], 1 - world.rank());
  receive->wait();
  model.reset();
  session.destroy();
  expect(!ddp::is_initialized(), "the parent has left");
}

}  // namespace

Scenarios group_scenarios() {
  return {
      {"new groups", new_groups},
      {"split", split},
      {"crossed", crossed},
      {"group mistakes", mistakes},
      {"destroy groups", destroy},
      {"late", late},
      {"disagree", disagree},
      {"other backends", other_backends},
      {"default session", default_session},
      {"lose member", lose_member},
      {"lose rank 3", lose_rank_3},
      {"leave", leave},
      {"shared memory", shared_memory},
      {"fork", fork_with_all},
  };
}

}  // namespace ddp::test
