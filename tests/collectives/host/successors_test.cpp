// SPDX-License-Identifier: BSD-3-Clause
// Groups that await successors: a new process takes the place of a rank that was killed (successions.hpp), and what
// ends such a group all the same.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>

#include "collectives/backend_error.hpp"
#include "collectives/host/failure.hpp"
#include "tests/collectives/host/job.hpp"
#include "tests/collectives/host/successions.hpp"
#include "tests/support/environment.hpp"
#include "tests/support/process.hpp"

using namespace ddp::collectives;
using namespace ddp::collectives::test;
using Catch::Matchers::Contains;

namespace {

constexpr int kWrong = 77;  // exit code of a rank that got a wrong result

// Sums as many ones of all ranks. Returns the status, or kWrong.
int sum(ddp_backend_group* group, std::size_t count, BackendError* error, std::int64_t timeout_ms = kTimeoutMs) {
  std::vector<float> ones(count, 1);
  const auto status = host_backend().all_reduce(group, ones.data(), count, 0, 0, 0, timeout_ms, error);
  const auto ranks = static_cast<float>(group->size());
  const bool right = std::count(ones.begin(), ones.end(), ranks) == static_cast<std::ptrdiff_t>(count);
  return status != DDP_BACKEND_OK || right ? static_cast<int>(status) : kWrong;
}

// Runs rank 1, which does `before` and is killed then, and rank 0, which does `with_it`, and then `after` once rank 1
// is gone. Returns the exit code of rank 0.
struct Scene {
  std::function<void(ddp_backend_group*)> before, with_it;
  std::function<int(ddp_backend_group*)> after;
  std::function<void()> once_killed = [] {};                                  // in the test's process
  std::function<void(ddp_backend_group*)> until_killed = [](const auto*) {};  // rank 1, after `before`
  std::function<bool()> may_be_killed = [] { return true; };                  // in the test's process
};
int play(const Succession& world, const Scene& scene) {
  int gone[2], ready[2];
  REQUIRE((pipe2(gone, O_CLOEXEC) == 0 && pipe2(ready, O_CLOEXEC) == 0));
  const pid_t second = fork_rank([&] {
    ddp_backend_group* const group = world.enter(1);
    scene.before(group);
    if (write(ready[1], "r", 1) != 1) return 1;
    scene.until_killed(group);
    for (;;) pause();
  });
  close(ready[1]);  // so that its end is noticed if it fails
  const pid_t first = fork_rank([&] {
    ddp_backend_group* const group = world.enter(0);
    scene.with_it(group);
    read_from<char>(gone[0]);
    return scene.after(group);
  });
  CHECK(read_from<char>(ready[0]) == 'r');
  ddp::testing::wait_until(scene.may_be_killed);
  kill(second, SIGKILL);
  CHECK(reap(second) == -1 - SIGKILL);
  scene.once_killed();
  CHECK(write(gone[1], "g", 1) == 1);
  const int code = reap(first);
  for (const int end : {gone[0], gone[1], ready[0]}) close(end);
  return code;
}

void mark_or_throw(ddp_backend_group* group) {
  BackendError error;
  if (mark(group, kTimeoutMs, &error) != DDP_BACKEND_OK) throw std::runtime_error(error.text);
}

// Returns how a sum ends, and that it ends the group if it does.
int try_to_sum(ddp_backend_group* group) {
  BackendError error;
  const int status = sum(group, 100, &error);
  host_backend().group_destroy(group);
  return status;
}

// Returns how a sum ends that waits a tenth of a second.
int wait_shortly(ddp_backend_group* group) {
  BackendError error;
  return sum(group, 100, &error, 100);
}

std::string why_refused(const Succession& world, const Position& position) {
  // Children do not have the mapping of the process that has made the segment.
  const Segment segment = Segment::attach(ddp::rendezvous::Descriptor(dup(world.segment().descriptor())));
  try {
    LoggedCollectives::check_successor(segment, 1, position);
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "";
}

}  // namespace

TEST_CASE("successors: whenever ranks are killed, others take their places, and all results are as without kills",
          "[collectives][integration]") {
  const int kills = ddp::testing::number_from("DDPRUN_HOST_SUCCESSIONS", 40);
  for (const std::uint32_t ranks : {2U, 4U}) kill_and_succeed(ranks, kills);
}

TEST_CASE("successors: a rank that dies in a window with a message is lost, and one that dies after the next mark not",
          "[collectives][integration]") {
  const auto exchange_only = [](ddp_backend_group* group) {
    BackendError error;
    char byte = 'b';
    ddp_backend_message* message = nullptr;
    std::int32_t peer = group->membership.rank() == 0 ? 1 : 0;
    const auto status = peer == 1 ? host_backend().send(group, &byte, 1, peer, 0, &message, &error)
                                  : host_backend().receive(group, &byte, 1, peer, 0, &message, &error);
    if (status != DDP_BACKEND_OK) throw std::runtime_error(error.text);
    if (host_backend().message_wait(group, message, kTimeoutMs, &peer, &error) != DDP_BACKEND_OK)
      throw std::runtime_error(error.text);
    host_backend().message_free(message);
  };
  const auto exchange = [&](ddp_backend_group* group) {
    mark_or_throw(group);
    exchange_only(group);
  };
  const Succession world(2);
  CHECK(play(world, {exchange, exchange, try_to_sum}) == DDP_BACKEND_PEER_LOST);
  CHECK_THAT(why_refused(world, {}), Contains("the group has lost a rank"));

  const auto exchange_and_mark = [&](ddp_backend_group* group) {
    exchange(group);
    mark_or_throw(group);
  };
  const Succession later(2);
  CHECK(play(later, {exchange_and_mark, exchange_and_mark, wait_shortly}) == DDP_BACKEND_TIMEOUT);
  // Before the first mark: then the start cannot be repeated.
  const auto message_and_mark = [&](ddp_backend_group* group) {
    exchange_only(group);
    mark_or_throw(group);
  };
  const Succession start(2);
  CHECK(play(start, {message_and_mark, message_and_mark, wait_shortly}) == DDP_BACKEND_TIMEOUT);
  CHECK_THAT(why_refused(start, {}), Contains("what came before its first mark had messages"));

  // The mark counts that the dead rank had reached, not where the others are.
  const Succession in_mark(2);
  Scene scene = {exchange, exchange, [](ddp_backend_group* group) {
                   mark_or_throw(group);
                   return wait_shortly(group);
                 }};
  scene.until_killed = mark_or_throw;
  scene.may_be_killed = [&] { return in_mark.segment().counters(1).window > kFirstWindow + 1; };
  CHECK(play(in_mark, scene) == DDP_BACKEND_TIMEOUT);
}

TEST_CASE("successors: a message that is under way at a mark makes the window after it one without successors",
          "[collectives][integration]") {
  const auto mark_twice = [](ddp_backend_group* group) {
    mark_or_throw(group);
    BackendError error;
    static char byte = 0;
    ddp_backend_message* message = nullptr;
    if (group->membership.rank() == 1) host_backend().receive(group, &byte, 1, 0, 0, &message, &error);
    mark_or_throw(group);
  };
  const Succession world(2);
  CHECK(play(world, {mark_twice, mark_twice, try_to_sum}) == DDP_BACKEND_PEER_LOST);
}

TEST_CASE(
    "successors: more than the log holds gives right results, and then a rank that dies is lost until the next mark",
    "[collectives][integration]") {
  const std::size_t count = GENERATE(20'000U, 100U);  // more bytes than the log holds, or more calls than are listed
  const auto outgrow = [count](ddp_backend_group* group) {
    mark_or_throw(group);
    BackendError error;
    const std::size_t calls = count == 100 ? kMostListedCalls + 1 : 5;
    for (std::size_t i = 0; i < calls; ++i) {
      if (sum(group, count, &error) != DDP_BACKEND_OK) throw std::runtime_error("no right sum");
    }
  };
  const std::uint64_t log_bytes = count == 100 ? kLogBytes : 128 << 10;
  const Succession world(2, log_bytes);
  CHECK(play(world, {outgrow, outgrow, try_to_sum}) == DDP_BACKEND_PEER_LOST);

  const Succession marked(2, log_bytes);
  const auto outgrow_and_mark = [&](ddp_backend_group* group) {
    outgrow(group);
    mark_or_throw(group);
  };
  CHECK(play(marked, {outgrow_and_mark, outgrow_and_mark, wait_shortly}) == DDP_BACKEND_TIMEOUT);
}

TEST_CASE("successors: the deadline ends a wait for a place that nobody takes, and a rank that leaves is lost",
          "[collectives][integration]") {
  const Succession world(2);
  CHECK(play(world, {mark_or_throw, mark_or_throw, wait_shortly}) == DDP_BACKEND_TIMEOUT);

  const Succession left(2);
  const auto mark_and_leave = [](ddp_backend_group* group) {
    mark_or_throw(group);
    host_backend().group_destroy(group);
  };
  CHECK(play(left, {mark_and_leave, mark_or_throw, try_to_sum}) == DDP_BACKEND_PEER_LOST);
  CHECK_THAT(why_refused(left, {}), Contains("it has left the group"));
}

namespace {

// What a process of rank 1 calls after its mark.
using GroupCall = std::function<ddp_backend_status(ddp_backend_group*, ddp_backend_error*)>;

GroupCall sum_of(std::size_t count, ddp_backend_reduce_op op = 0) {
  return [count, op](ddp_backend_group* group, ddp_backend_error* error) {
    std::vector<float> ones(count, 1);
    return host_backend().all_reduce(group, ones.data(), count, 0, op, 0, kTimeoutMs, error);
  };
}

// Rank 1 sends `count` elements to rank 0.
GroupCall exchange_of(std::size_t count) {
  return [count](ddp_backend_group* group, ddp_backend_error* error) {
    const bool sends = group->membership.rank() == 1;
    const std::size_t sent[] = {sends ? count : 0, 0}, received[] = {0, sends ? 0 : count};
    const std::vector<float> input(count);
    std::vector<float> output(count);
    return host_backend().all_to_all(group, input.data(), sent, output.data(), received, 0, 0, kTimeoutMs, error);
  };
}

ddp_backend_status forgotten_mark(ddp_backend_group*, ddp_backend_error*) { return DDP_BACKEND_OK; }

// A successor of rank 1 that makes one call after its mark, and then the sum that rank 0 waits with. Returns how that
// ends, or 7 if the process is said to be not deterministic.
int succeed_and_call(const Succession& world, const GroupCall& call, bool marks = true) {
  ddp_backend_group* const group = world.succeed(1, world.kept(1).records[0].position);
  if (marks) mark_or_throw(group);
  BackendError error;
  const auto status = call(group, &error);
  if (std::string(error.text).starts_with("not deterministic")) return 7;
  if (status != DDP_BACKEND_OK) throw std::runtime_error(error.text);
  const int code = sum(group, 100, &error);
  if (std::string(error.text).starts_with("not deterministic")) return 7;
  host_backend().group_destroy(group);
  return code;
}

}  // namespace

TEST_CASE("successors: one that repeats something else gets an error and changes nothing, so that another can succeed",
          "[collectives][integration]") {
  struct Difference {
    GroupCall before, repeated;
    bool marks = true;
  };
  const auto barrier = [](ddp_backend_group* group, ddp_backend_error* error) {
    return host_backend().barrier(group, 0, kTimeoutMs, error);
  };
  const std::vector<Difference> differences = {{sum_of(100), sum_of(99)},        {sum_of(50'000), sum_of(50'001)},
                                               {sum_of(100), sum_of(100, 3)},    {sum_of(100), barrier},
                                               {exchange_of(5), exchange_of(6)}, {sum_of(100), forgotten_mark, false}};
  for (const Difference& difference : differences) {
    const Succession world(2);
    const auto act = [&](ddp_backend_group* group) {
      BackendError error;
      if (sum(group, 10, &error) != DDP_BACKEND_OK) throw std::runtime_error(error.text);
      if (group->membership.rank() == 1) world.kept(1).records[0].position = position(*group);
      mark_or_throw(group);
      if (difference.before(group, &error) != DDP_BACKEND_OK) throw std::runtime_error(error.text);
    };
    pid_t successor = 0;
    const auto replace = [&] {
      CHECK(reap(fork_rank([&] { return succeed_and_call(world, difference.repeated, difference.marks); })) == 7);
      successor = fork_rank([&] { return succeed_and_call(world, difference.before); });
    };
    CHECK(play(world, {act, act, try_to_sum, replace}) == DDP_BACKEND_OK);
    CHECK(reap(successor) == DDP_BACKEND_OK);
  }
}

TEST_CASE("successors: one that marks where its predecessor called something else gets an error",
          "[collectives][integration]") {
  const Succession world(2);
  const auto call_barrier = [&](ddp_backend_group* group) {
    BackendError error;
    if (sum(group, 10, &error) != DDP_BACKEND_OK) throw std::runtime_error(error.text);
    if (group->membership.rank() == 1) world.kept(1).records[0].position = position(*group);
    if (host_backend().barrier(group, 0, kTimeoutMs, &error) != DDP_BACKEND_OK) throw std::runtime_error(error.text);
  };
  const auto replace = [&] {
    CHECK(reap(fork_rank([&] {
            BackendError error;
            mark(world.succeed(1, world.kept(1).records[0].position), kTimeoutMs, &error);
            return std::string(error.text).starts_with("not deterministic") ? 7 : 1;
          })) == 7);
  };
  CHECK(play(world, {call_barrier, call_barrier, wait_shortly, replace}) == DDP_BACKEND_TIMEOUT);
}

TEST_CASE("successors: one that repeats the start catches up with the record, if it has made the same calls",
          "[collectives][integration]") {
  const auto sum_or_throw = [](ddp_backend_group* group, std::size_t count) {
    BackendError error;
    if (sum(group, count, &error) != DDP_BACKEND_OK) throw std::runtime_error(error.text);
  };
  const Succession world(2);
  const auto act = [&](ddp_backend_group* group) {
    for (const std::size_t count : {10U, 20'000U}) sum_or_throw(group, count);
    mark_or_throw(group);
    sum_or_throw(group, 7);
    if (group->membership.rank() == 1) world.kept(1).records[0].position = position(*group);
    mark_or_throw(group);
  };
  const auto repeat_start = [&](const std::vector<std::size_t>& counts) {
    BackendError error;
    ddp_backend_group* const group = world.succeed(1, {});
    for (const std::size_t count : counts) {
      if (sum(group, count, &error) != DDP_BACKEND_OK) return std::string(error.text);
    }
    catch_up(group, world.kept(1).records[0].position, &error);
    if (error.text[0] != 0) return std::string(error.text);
    mark_or_throw(group);
    return std::to_string(sum(group, 100, &error));
  };
  pid_t successor = 0;
  const auto replace = [&] {
    for (const std::vector<std::size_t>& wrong : {std::vector<std::size_t>{10}, {10, 20'000, 1}, {10, 10}}) {
      CHECK(reap(fork_rank([&] { return repeat_start(wrong).starts_with("not deterministic") ? 7 : 1; })) == 7);
    }
    successor = fork_rank([&] { return repeat_start({10, 20'000}) == "0" ? 7 : 1; });
  };
  const auto sum_hundred = [](ddp_backend_group* group) {
    BackendError error;
    return sum(group, 100, &error);
  };
  CHECK(play(world, {act, act, sum_hundred, replace}) == DDP_BACKEND_OK);
  CHECK(reap(successor) == 7);
}

TEST_CASE("successors: none is let in while the process is there, or with a record of another time or group",
          "[collectives][integration]") {
  const Succession world(2);
  const auto mark_twice = [&](ddp_backend_group* group) {
    mark_or_throw(group);
    if (group->membership.rank() == 1) world.kept(1).records[0].position = position(*group);
    mark_or_throw(group);
    if (group->membership.rank() == 1) world.kept(1).records[1].position = position(*group);
  };
  const auto mark_once_more = [&](ddp_backend_group* group) {
    mark_twice(group);
    const std::string why = why_refused(world, {});
    if (why.find("its process is still there") == std::string::npos)
      throw std::runtime_error("another process would be let in, or is refused for another reason: " + why);
  };
  const auto check = [&] {
    CHECK(why_refused(world, {}).empty());  // it repeats the start
    CHECK_THAT(why_refused(world, {1, 0, kFirstWindow}), Contains("an earlier window"));
    CHECK(why_refused(world, world.kept(1).records[0].position).empty());
    CHECK(why_refused(world, world.kept(1).records[1].position).empty());  // before a mark that it did not reach
    CHECK_THAT(why_refused(world, {9, 9, 3}), Contains("not of this group"));
  };
  CHECK(play(world, {mark_once_more, mark_twice, [](ddp_backend_group*) { return 0; }, check}) == 0);
  CHECK_THAT(why_refused(Succession(2, 0), {}), Contains("awaits no successors"));
}

namespace {

// Returns the descriptor of the segment of a group that another process is in.
int segment_of(pid_t process) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone).string().starts_with("/memfd:ddp_group"))
      return open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
  }
  throw std::runtime_error("no segment");
}

}  // namespace

TEST_CASE("successors: a group that meets through the store awaits them, too", "[collectives][integration]") {
  const StoreProcess server;
  const auto join = [&](int rank) {
    return join_group(server.port(), "g", rank, 2, kTimeoutMs, AfterDeath::AwaitSuccessor);
  };
  const pid_t first = fork_rank([&] {
    ddp_backend_group* const group = join(0);
    mark_or_throw(group);
    void* memory = nullptr;
    BackendError error;
    if (host_backend().allocate(group, 4096, 0, kTimeoutMs, &memory, &error) != DDP_BACKEND_OK) return 10;
    if (group->collectives.buffers().were_used()) return 11;
    host_backend().release(group, memory);
    return try_to_sum(group);
  });
  int record[2];
  REQUIRE(pipe2(record, O_CLOEXEC) == 0);
  const pid_t second = fork_rank([&] {
    ddp_backend_group* const group = join(1);
    const Position noted = position(*group);
    if (write(record[1], &noted, sizeof noted) != sizeof noted) return 1;
    mark_or_throw(group);
    raise(SIGKILL);
    return 0;
  });
  CHECK(reap(second) == -1 - SIGKILL);
  const auto noted = read_from<Position>(record[0]);
  const pid_t successor = fork_rank([&] {
    ddp_backend_group* const group = make_successor(ddp::rendezvous::Descriptor(segment_of(first)), 1, noted, {0, 1});
    mark_or_throw(group);
    return try_to_sum(group);
  });
  CHECK(reap(first) == DDP_BACKEND_OK);
  CHECK(reap(successor) == DDP_BACKEND_OK);
  close(record[0]);
  close(record[1]);
}

TEST_CASE("successors: ranks that disagree on awaiting them form no group, and a group on two nodes awaits none",
          "[collectives][integration]") {
  const StoreProcess server;
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(fork_rank([&, rank] {
      try {
        join_group(server.port(), "g", rank, 2, kTimeoutMs,
                   rank == 0 ? AfterDeath::AwaitSuccessor : AfterDeath::RankIsLost);
      } catch (const std::exception& e) {
        return std::string(e.what()).starts_with("ranks disagree on whether the group awaits successors") ? 7 : 1;
      }
      return 2;
    }));
  }
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(fork_rank([&, rank] {
      ddp_backend_group* const group =
          join_group(server.port(), "nodes", rank, 2, kTimeoutMs, AfterDeath::AwaitSuccessor, {}, place_on_node(rank));
      BackendError error;
      const bool has_marks = mark(group, kTimeoutMs, &error) != DDP_BACKEND_UNSUPPORTED;
      return !has_marks && try_to_sum(group) == DDP_BACKEND_OK ? 7 : 1;
    }));
  }
  for (const pid_t rank : ranks) CHECK(reap(rank) == 7);
}
